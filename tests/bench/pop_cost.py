"""CPU of POP on a leader, per message: received, and acknowledged together or one by one.

``python -m tests.bench.pop_cost [MESSAGES]`` prints microseconds. The broker is alone in its group,
in virtual time, with the real store on a temporary directory; no wire is part of it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from broker.limits import CONSUME
from broker.pop.pop_request import PoppedMessage
from tests.broker.pop.pop_client import Member
from tests.broker.single_broker import SingleBroker, batched, running_broker
from tests.support.virtual_network import NetworkedLoop, run_in_virtual_time

MESSAGES = 20_000
BATCH = 500
TOGETHER = 8
"""Members that receive in the same turn, each from a queue of its own."""


async def _fill(broker: SingleBroker, count: int) -> None:
    await broker.create_topic("orders", TOGETHER)
    body = b"".join([batched(b"x" * 200, b"TAGS\1a\2")] * BATCH)
    for number in range(count // BATCH):
        answer = await broker.send("orders", number % TOGETHER, body, m="true")
        assert answer.code == 0, answer.remark


async def _receive(members: list[Member], count: int) -> list[tuple[PoppedMessage, ...]]:
    got: list[tuple[PoppedMessage, ...]] = []
    while sum(map(len, got)) < count:
        requests = [
            member.receive(CONSUME.pop_messages_max, queue=queue, invisible_ms=3_600_000)
            for queue, member in enumerate(members)
        ]
        got += await asyncio.gather(*requests)
    return got


async def _measure(broker: SingleBroker, count: int) -> None:
    await _fill(broker, count)
    for alone in (False, True):
        members = [Member(broker, f"alone-{alone}") for _ in range(TOGETHER)]
        began = process_time()
        got = await _receive(members, count)
        received = process_time()
        for row in range(0, len(got), TOGETHER):
            acks = [
                members[0].ack(*part)
                for messages in got[row : row + TOGETHER]
                for part in ([[each] for each in messages] if alone else [messages])
                if part
            ]
            await asyncio.gather(*acks)
        ended = process_time()
        kind = "one by one" if alone else f"{CONSUME.pop_messages_max} at once"
        micros = [1e6 * seconds / count for seconds in (received - began, ended - received)]
        print(f"received: {micros[0]:.1f} us a message; acknowledged {kind}: {micros[1]:.1f} us")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES

    async def scenario(loop: NetworkedLoop) -> None:
        with TemporaryDirectory() as directory:
            sizes: dict[str, Any] = {"segment_size": 64 << 20, "max_message_size": 4 << 20}
            data = Path(directory)
            async with running_broker(loop, data, clock_runs=True, **sizes) as broker:
                await _measure(broker, count)

    run_in_virtual_time(scenario)


if __name__ == "__main__":
    main()
