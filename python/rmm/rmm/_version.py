"""The version of RAPIDS' interface that this package offers; the project's own is ``rmm.__kmm_version__``."""

__version__ = "25.10.00"  # equals the file VERSION
__git_commit__ = ""

__all__ = ["__git_commit__", "__version__"]
