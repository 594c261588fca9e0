"""What an event loop tells of an error that nobody caught: it stops the node, or one connection."""

from __future__ import annotations

import errno
from socket import gaierror

import pytest

from broker.system.uncaught_errors import fatal_error_of


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error", "/data/index/00000000000000000000"),
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/state/mark"),
        PermissionError(errno.EACCES, "Permission denied", "/data/state/vote"),
        KeyError("a bug"),
    ],
    ids=repr,
)
def test_an_error_of_a_file_or_of_the_code_stops_the_node(error: Exception) -> None:
    assert fatal_error_of({"message": "Exception in callback", "exception": error}) is error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        gaierror(-2, "Name or service not known"),
    ],
    ids=repr,
)
def test_an_error_of_the_network_ends_one_connection_alone(error: OSError) -> None:
    assert fatal_error_of({"message": "never retrieved", "exception": error}) is None


@pytest.mark.parametrize("told", ["transport", "socket"])
def test_whatever_asyncio_tells_of_a_socket_is_of_that_socket(told: str) -> None:
    """Too many open files when accepting, say: asyncio itself tries again."""
    error = OSError(errno.EMFILE, "Too many open files")
    assert (
        fatal_error_of({"message": "out of resource", "exception": error, told: object()}) is None
    )


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_that_too_many_files_are_open_stops_no_node(number: int) -> None:
    error = OSError(number, "Too many open files")
    assert fatal_error_of({"message": "Exception in callback", "exception": error}) is None


def test_what_has_no_error_to_tell_is_only_logged() -> None:
    assert fatal_error_of({"message": "Task was destroyed but it is pending!"}) is None
