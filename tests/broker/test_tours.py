"""The tours of ``docs/ARCHITECTURE.md`` lead where a message goes.

Each file of a reading list has a part in what the tour follows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import FrameType

from broker.remoting.protocol.codes import ResponseCode
from tests.broker.single_broker import SingleBroker
from tests.support.imports import ROOT

PAGE = ROOT / "docs" / "ARCHITECTURE.md"
KEY = "UNIQ_KEY\x01key\x02"


def reading_list(begins: str) -> list[str]:
    """The files of the paragraph that begins so."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n{begins}")
    assert found
    files = re.findall(r"`([\w/]+\.py)`", rest.partition("\n\n")[0])
    rooms = ("dledger/", "store/")
    own = f"tests/broker/{__name__.rpartition('.')[2]}.py"
    return [name if name.startswith(rooms) else f"broker/{name}" for name in files if name != own]


@contextmanager
def called() -> Iterator[set[str]]:
    """The files whose functions are called in the block."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(before)


async def files_of(request: Awaitable[object]) -> set[str]:
    with called() as names:
        await request
    root = f"{ROOT}/"
    return {name.removeprefix(root) for name in names if name.startswith(root)}


async def test_the_tour_of_a_message_leads_to_its_answer(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    files = reading_list("To follow a plain message")
    assert len(files) > 20
    assert not set(files) - await files_of(broker.send("orders", 0, b"x", KEY))


async def test_the_tour_of_a_pull_leads_to_its_answer(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    assert (await broker.send("orders", 0, b"x", KEY)).code == ResponseCode.SUCCESS
    files = reading_list("Simple and push consumers of RocketMQ 5")
    assert len(files) > 10
    assert not set(files) - await files_of(broker.pull("orders", 0, 0, consumerGroup="g"))
    assert broker.broker.context.batcher.group("g") is not None
