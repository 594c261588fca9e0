"""A producer that sends while a test changes the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

DLEDGER = (sys.executable, "-m", "broker")
PAUSE_SECONDS = 0.002
END_SECONDS = 120.0
SEND_SECONDS = "30"
"""After this time a producer gives a message up, and fails. A transfer takes much less, also where
the machine is busy; a group without a majority takes for ever."""


class Load:
    """A producer that sends one line after the other, and counts acknowledgements."""

    def __init__(
        self,
        namesrv: str,
        topic: str,
        program: Sequence[str | Path] = DLEDGER,
    ) -> None:
        """``program`` begins a command line of `dledger`."""
        self.sent = 0
        self._stop = threading.Event()
        self._process = subprocess.Popen(
            [*program, "produce", topic, "--json", "--timeout", SEND_SECONDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NAMESRV_ADDR": namesrv},
        )
        self._writer = threading.Thread(target=self._write)
        self._reader = threading.Thread(target=self._read)
        self._lines: list[str] = []
        self._writer.start()
        self._reader.start()

    def _write(self) -> None:
        assert self._process.stdin is not None
        while not self._stop.wait(PAUSE_SECONDS):
            self._process.stdin.write(f"line {self.sent}\n")
            self._process.stdin.flush()
            self.sent += 1
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines += self._process.stdout

    def end(self) -> int:
        """Ends it. Returns how many messages were acknowledged: all, or the producer has failed."""
        self._stop.set()
        try:
            self._writer.join(END_SECONDS)
            code = self._process.wait(END_SECONDS)
        finally:
            self._process.kill()
            self._writer.join()
            self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        acknowledged = [json.loads(line) for line in self._lines]
        assert (code, len(acknowledged)) == (0, self.sent)
        return len(acknowledged)
