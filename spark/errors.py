"""Errors of a read or an audit through Spark. Each is one line: what is wrong, and where."""

from __future__ import annotations


class SparkSideError(Exception):
    """Base of the errors of this package."""


class OptionError(SparkSideError):
    """An option of the data source is unknown, or its value is impossible."""


class ReplicaError(SparkSideError):
    """A path holds no snapshot, or a file has wrong bytes: then it names file and byte."""


class JavaError(SparkSideError):
    """There is no Java that Spark could run on."""


class PackageError(SparkSideError):
    """The archive for Spark's workers cannot be made."""


class JobError(SparkSideError):
    """Spark, an executor or Java failed, so that a job has no result."""


def last_line(error: Exception) -> str:
    """The message of an error, from the traceback of a task or of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for mark in ("Error: ", "Exception: "):
        for line in reversed(lines):
            if mark in line:
                return line
    return lines[0] if lines else type(error).__name__
