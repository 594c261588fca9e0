"""A steady producer in a process of its own: ``python -m tests.fuzz.witness ADDRESS TOPIC``.

It sends a message each 20 ms and waits for none. For each line on stdin it prints a line of JSON
about the time since the last one: ``acknowledged``, ``refused``, ``gap``, which is the longest time
in seconds without an acknowledgement, and ``starved``, the longest time for which this process
itself did not run. It signs if the environment names an account.
"""

from __future__ import annotations

import asyncio
import os
import sys

import orjson

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import security_from
from tests.broker.single_broker import send_ext

INTERVAL_SECONDS = 0.02
ANSWER_SECONDS = 10.0
BODY = b"x" * 100


class Witness:
    """What the producer saw since the last report."""

    def __init__(self, address: str, topic: str) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._client = RemotingClient(loop, security=security_from(os.environ))
        self._address = address
        self._topic = topic
        self._acknowledged_at = self._ran_at = loop.time()
        self._acknowledged = self._refused = 0
        self._gap = self._starved = 0.0

    async def send(self) -> None:
        """Sends for ever."""
        while True:
            now = self._loop.time()
            self._starved = max(self._starved, now - self._ran_at - INTERVAL_SECONDS)
            self._ran_at = now
            answer = self._client.invoke_nowait(
                self._address,
                RequestCode.SEND_MESSAGE_V2,
                send_ext(self._topic, 0),
                (BODY,),
                timeout=ANSWER_SECONDS,
            )
            answer.add_done_callback(self._answered)
            await asyncio.sleep(INTERVAL_SECONDS)

    def _answered(self, answer: asyncio.Future[Frame]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if isinstance(error, CallError) or answer.result().code:
            self._refused += 1
            return
        self._acknowledged += 1
        self._look()
        self._acknowledged_at = self._loop.time()

    def _look(self) -> None:
        self._gap = max(self._gap, self._loop.time() - self._acknowledged_at)

    def report(self) -> dict[str, float]:
        """See the module."""
        self._look()
        found = {
            "acknowledged": self._acknowledged,
            "refused": self._refused,
            "gap": round(self._gap, 3),
            "starved": round(self._starved, 3),
        }
        self._acknowledged = self._refused = 0
        self._gap = self._starved = 0.0
        return found


async def main() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    witness = Witness(*sys.argv[1:])
    sending = loop.create_task(witness.send())
    while await commands.readline():
        sys.stdout.buffer.write(orjson.dumps(witness.report()) + b"\n")
        sys.stdout.flush()
        if sending.done():
            await sending
    sending.cancel()


if __name__ == "__main__":
    asyncio.run(main())
