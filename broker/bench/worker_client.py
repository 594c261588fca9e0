"""The command's side of the worker: sends jobs, and reads results."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Any

import orjson

from broker.bench.jobs import (
    ConnectionsJob,
    FillJob,
    FloorJob,
    HttpJob,
    ProbeJob,
    ProduceJob,
    ReplayJob,
    SteadyJob,
    encode_job,
)
from broker.bench.results import Round, SteadyRound
from broker.security.credentials import PROFILE_VARIABLE


class LoadError(Exception):
    """The worker could not do a job, or has ended."""


class LoadClient:
    """One worker process; the context manager ends it. Without a ``profile`` its credentials are
    those of the environment."""

    def __init__(self, name_servers: str, profile: str = "") -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "broker.bench.worker", name_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, PROFILE_VARIABLE: profile} if profile else None,
        )
        if process.stdin is None or process.stdout is None:
            raise LoadError("the process that makes the load has no pipes")
        self._process, self._jobs, self._answers = process, process.stdin, process.stdout

    @property
    def pid(self) -> int:
        """The pid of the worker."""
        return self._process.pid

    def __enter__(self) -> LoadClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()

    def measure(self, job: ProduceJob | ReplayJob | FloorJob | HttpJob) -> list[Round]:
        """The rounds of a job. Raises :class:`LoadError` if it could not be done."""
        return [Round(**fields) for fields in self._ask(encode_job(job))]

    def steady(self, job: SteadyJob) -> list[SteadyRound]:
        """The rounds of a steady load. Raises :class:`LoadError` likewise."""
        return [SteadyRound(**fields) for fields in self._ask(encode_job(job))]

    def begin_steady(self, job: SteadyJob) -> None:
        """Begins a steady load that goes on until :meth:`abandon`."""
        self._tell(encode_job(job))

    def abandon(self) -> None:
        """Ends the process in the middle of its job. Raises :class:`LoadError` if it has ended by
        itself, because the job could not be done."""
        if self._process.poll() is not None:
            self._result()
        self._process.kill()

    def fill(self, job: FillJob) -> None:
        """Sends the messages; returns once all are acknowledged."""
        self._ask(encode_job(job))

    def hold_connections(self, job: ConnectionsJob) -> None:
        """Opens the job's connections, and closes those of earlier such jobs."""
        self._ask(encode_job(job))

    def start_probe(self, job: ProbeJob) -> None:
        """Begins to send continuously."""
        self._tell(encode_job(job))

    def first_after(self, moment: float) -> float:
        """The time at which the first message sent after ``moment`` was acknowledged."""
        at: float = self._ask(b"%r\n" % moment)["at"]
        return at

    def stop_probe(self) -> None:
        self._tell(b"\n")

    def _ask(self, line: bytes) -> Any:
        self._tell(line)
        return self._result()

    def _result(self) -> Any:
        answer = self._answers.readline()
        if not answer:
            raise LoadError("the process that makes the load has ended; see above")
        result = orjson.loads(answer)
        if isinstance(result, dict) and "error" in result:
            raise LoadError(f"the load failed: {result['error']}")
        return result

    def _tell(self, line: bytes) -> None:
        try:
            self._jobs.write(line)
            self._jobs.flush()
        except BrokenPipeError:
            raise LoadError("the process that makes the load has ended; see above") from None
