"""Refuses to run where RAPIDS' package of the same name was installed into the same directory."""

import os


def refuse_clash(package_directory: str) -> None:
    """ImportError where the metadata of ``rmm-cu12`` or the like lies beside this package: both write ``rmm/``."""
    site = os.path.dirname(package_directory)
    for entry in os.listdir(site):
        if entry.startswith(("rmm_cu", "rmm-")) and entry.endswith((".dist-info", ".egg-info")):
            distribution = entry.split("-", 1)[0].replace("_", "-")
            raise ImportError(
                f"{distribution} ({entry}) and kmm-rmm are both installed in {site}. Both write the directory rmm, so "
                f"neither is whole. Run: pip uninstall {distribution} kmm-rmm, then install one of the two again."
            )
