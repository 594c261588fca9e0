"""Runs commands as forks of a process that has imported all of them.

``python -m tests.cluster.forked_commands FD`` is that process. An interpreter and the imports of a
command take 0.2 s of CPU time, and tests run hundreds of commands. A fork has streams, an
environment and an end as after exec. A test cannot fork itself, as a worker of pytest has threads.

A request is one packet on the socket ``FD``: a JSON document with the arguments, the environment
and the working directory, and the descriptors of the three streams. Its answer is the pid. A packet
with a pid alone asks for the exit code of that process, which has ended.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from broker.cli.command_line import COMMANDS, load_command, run_command

PRODUCT = Path(__file__).parents[2]
PACKET_BYTES = 1 << 16
STREAMS = 3
WITH_THREADS = {"backup", "bench", "restore", "verify"}
"""What these import, numpy and gRPC, minds forks. A fork imports them itself."""


class CommandStarter:
    """A process that forks commands, until the tests end."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.forked_commands", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=PRODUCT,
                env={},  # so the streams have the encoding of a command with few variables
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        self._lock = Lock()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], given: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs one command with ``given`` as its input, as ``subprocess.run`` does.

        Raises ``subprocess.TimeoutExpired`` if it still runs after ``timeout`` seconds.
        """
        (its_input, inlet), (output, its_output), (errors, its_errors) = (
            os.pipe() for _ in range(STREAMS)
        )
        theirs = (its_input, its_output, its_errors)
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": os.getcwd(),
        }
        pid = self._ask(request, theirs)
        for fd in theirs:
            os.close(fd)
        with ThreadPoolExecutor(STREAMS) as threads:
            giving = threads.submit(_give, inlet, given)
            found = [threads.submit(_take, fd) for fd in (output, errors)]
            in_time = _has_ended(pid, timeout)
            if not in_time:
                os.kill(pid, signal.SIGKILL)
        giving.result()
        stdout, stderr = (thread.result() for thread in found)
        code = self._ask(pid)
        if not in_time:
            raise subprocess.TimeoutExpired(list(arguments), timeout, stdout, stderr)
        return subprocess.CompletedProcess(list(arguments), code, stdout, stderr)

    def _ask(self, request: object, streams: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            return int(self._socket.recv(PACKET_BYTES))

    def close(self) -> None:
        """Ends the process."""
        self._socket.close()
        self._process.wait()


@cache
def command_starter() -> CommandStarter:
    """The one of this worker."""
    starter = CommandStarter()
    atexit.register(starter.close)
    return starter


def _give(fd: int, data: bytes) -> None:
    """Writes all, unless the command takes no more."""
    try:
        with open(fd, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:
        pass


def _take(fd: int) -> bytes:
    with open(fd, "rb") as stream:
        return stream.read()


def _has_ended(pid: int, timeout: float) -> bool:
    """Whether the process ends within ``timeout`` seconds. Nobody has waited for it yet."""
    fd = os.pidfd_open(pid)
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)
        return bool(ended.poll(timeout * 1000))
    finally:
        os.close(fd)


def _serve(requests: socket.socket) -> int:
    """Answers requests; in a fork it returns the exit code of the command."""
    for name in COMMANDS.keys() - WITH_THREADS:
        load_command(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot fork"
    gc.collect()
    gc.freeze()
    while True:
        packet, streams, _, _ = socket.recv_fds(requests, PACKET_BYTES, STREAMS)
        if not packet:
            return 0
        request = json.loads(packet)
        if isinstance(request, int):
            _, status = os.waitpid(request, 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                return _run(request, streams)
        for fd in streams:
            os.close(fd)
        requests.send(str(answer).encode())


def _run(request: dict[str, Any], streams: Sequence[int]) -> int:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    return run_command(request["arguments"])


if __name__ == "__main__":
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
