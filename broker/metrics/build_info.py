"""Which version of the program this process runs."""

from __future__ import annotations

from functools import cache
from importlib import metadata

UNKNOWN = "unknown"
"""Of a program that was never installed, such as a checkout on the Python path."""


@cache
def program_version() -> str:
    """The version of the installed package, as at the first call: an upgrade may replace its files
    while the process runs."""
    try:
        return metadata.version("dledger")
    except metadata.PackageNotFoundError:
        return UNKNOWN
