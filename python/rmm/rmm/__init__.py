"""rmm for Python."""

from ._core import native_version

__version__ = "25.10.00"
