"""Which gamecast this is."""

from __future__ import annotations

from functools import cache


@cache
def installed_version() -> str:
    """Return the version that is installed; looked up when first asked for, because that takes a while."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gamecast")
    except PackageNotFoundError:
        return "0+uninstalled"
