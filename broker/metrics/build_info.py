"""The version of the running program."""

from __future__ import annotations

from functools import cache
from importlib import metadata

UNKNOWN = "unknown"
"""The version of a program that is not installed, such as a checkout on the Python path."""


@cache
def program_version() -> str:
    """The version of the installed package at the first call. An upgrade may replace the files
    while the process runs."""
    try:
        return metadata.version("dledger")
    except metadata.PackageNotFoundError:
        return UNKNOWN
