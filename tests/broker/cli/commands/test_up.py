"""What `dledger up` says while it waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from broker.cli.commands.up import _report_ended
from broker.cli.local_cluster.local_cluster import design_cluster


class Ended:
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self.pid = os.getpid()
        self._code = code

    def poll(self) -> int | None:
        return self._code

    def wait(self, timeout: float) -> int:
        return self._code


def test_who_was_told_to_stop_is_not_reported_as_one_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = design_cluster(tmp_path, nodes=1)
    codes = dict(zip((process.name for process in cluster.processes), (0, 1), strict=True))

    for process in cluster.processes:

        def starter(_arguments: Sequence[str], log: BinaryIO, name: str = process.name) -> Ended:
            log.write(b"the last words\n")
            return Ended(codes[name])

        process.start(starter)

    reported = _report_ended(cluster, frozenset())

    (stopped, failed), told = codes, capsys.readouterr().err
    assert reported == {stopped, failed}
    assert told == (
        f"{stopped} was stopped\n"
        f"{failed} ended with exit code 1: the last words\n"
        f"once that is fixed, `dledger start {failed} --data {tmp_path}` starts it again\n"
    )
    assert _report_ended(cluster, reported) == frozenset()
