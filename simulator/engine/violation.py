"""Violations of promises."""

from __future__ import annotations


class Violation(AssertionError):  # noqa: N818 - it is what is looked for, not an error of ours
    """A promise was broken."""

    page = ""
    """A picture of the violation as a web page, if there is one."""
