"""The door against a model: any row of requests gives what a few lines of Python give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from broker.pop.pop_request import PoppedMessage
from broker.state.commands import CommitOffset, PutGroup
from broker.topics_and_groups import GroupConfig
from dledger.errors import NotLeaderError
from store.message.record import decode_record
from tests.broker.pop.pop_client import EXPIRED, OK, Member, committed, sent
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.search_effort import searching
from tests.support.virtual_network import NetworkedLoop, run_in_virtual_time

INVISIBLE_S = 10
ATTEMPTS = 3
GROUPS = "ab"

SEND = ("send", "a")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(GROUPS)),
        st.tuples(st.just("receive"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("ack"), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 20), st.sampled_from((0, 4, 30))),
        st.tuples(st.just("give up"), st.integers(0, 20)),
        st.tuples(st.just("sleep"), st.sampled_from((1, 5, 11))),
        st.tuples(st.just("commit"), st.integers(0, 6)),
        st.tuples(st.just("refuse"), st.integers(0, 20)),
    ),
    max_size=30,
)


@dataclass
class Delivery:
    attempt: int = 0
    visible: float = 0.0
    handle: str = ""
    is_known: bool = False
    """Whether its message group was looked at."""


@dataclass
class Model:
    """All messages of a queue, by offset, and what became of them."""

    groups: list[str] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    dead: list[int] = field(default_factory=list)
    out: dict[int, Delivery] = field(default_factory=dict)
    """Received or passed over, in FIFO order, and not done."""
    next: int = 0
    handles: list[tuple[int, str]] = field(default_factory=list)

    @property
    def committed(self) -> int:
        return min(self.out, default=self.next)

    def expected(self, count: int, now: float, *, fifo: bool) -> list[int]:
        self._bury(now, fifo=fifo)
        return self._turns(count, now) if fifo else self._any(count, now)

    def _any(self, count: int, now: float) -> list[int]:
        again = [offset for offset, each in self.out.items() if each.visible <= now]
        new = range(self.next, len(self.groups))
        chosen = [*sorted(again), *new][:count]
        self.next = max(self.next, *[each + 1 for each in chosen], 0)
        return chosen

    def _bury(self, now: float, *, fifo: bool) -> None:
        blocked: set[str] = set()
        for offset, each in sorted(self.out.items()):
            if not fifo:
                blocked = set()
            group = self.groups[offset] if each.is_known else "?"
            if (blocked and group == "?") or "?" in blocked or group in blocked:
                blocked.add(group)
                continue
            if each.attempt >= ATTEMPTS and each.visible <= now:
                self.end(offset)
                self.dead.append(offset)
            else:
                blocked.add(group)

    def _turns(self, count: int, now: float) -> list[int]:
        chosen: list[int] = []
        blocked: set[str] = set()
        for offset, each in sorted(self.out.items()):
            group = self.groups[offset] if each.is_known else "?"
            if "?" in blocked or group in blocked or (blocked and group == "?"):
                blocked.add(group)
                continue
            if each.visible <= now and len(chosen) < count:
                chosen.append(offset)
            blocked.add(group)
        if len(chosen) == count or "?" in blocked:
            return chosen
        for offset in range(self.next, len(self.groups)):
            self.out[offset] = Delivery(is_known=True)
            if self.groups[offset] not in blocked and len(chosen) < count:
                blocked.add(self.groups[offset])
                chosen.append(offset)
        self.next = len(self.groups)
        return chosen

    def receive(self, got: PoppedMessage, until: float) -> None:
        each = self.out.setdefault(got.offset, Delivery())
        each.attempt += 1
        each.visible = until
        each.handle = got.receipt_handle
        assert got.delivery_attempt == each.attempt
        self.handles.append((got.offset, got.receipt_handle))

    def is_valid(self, offset: int, handle: str, now: float) -> bool:
        each = self.out.get(offset)
        return each is not None and each.handle == handle and each.visible > now

    def end(self, offset: int) -> None:
        self.done.add(offset)
        del self.out[offset]

    def commit(self, offset: int) -> None:
        if offset > self.committed:
            for each in [each for each in self.out if each < offset]:
                self.end(each)
            self.next = max(self.next, offset)


async def follow(broker: SingleBroker, steps: list[tuple[Any, ...]]) -> None:
    model, member = Model(), Member(broker)
    await sent(broker, 0)
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=ATTEMPTS - 1), 1))
    assert await member.bodies() == []  # the cursor is there
    clock = broker.broker.context.batcher.now_ms
    for kind, *told in steps:
        await asyncio.sleep(0.01)
        now = clock() / 1000
        match kind:
            case "send":
                await sent(broker, 1, group=told[0])
                model.groups.append(told[0])
            case "receive":
                count, fifo = told
                expected = model.expected(count, now, fifo=fifo)
                got = await member.receive(count, fifo=fifo)
                assert [each.offset for each in got] == expected
                for each in got:
                    assert decode_record(each.record).body == b"%d" % each.offset
                    model.receive(each, each.invisible_until_ms / 1000)
            case "sleep":
                await asyncio.sleep(told[0])
            case "commit":
                offset = min(told[0], len(model.groups))
                await committed(broker, CommitOffset("g", "orders", 0, offset))
                model.commit(offset)
            case _ if model.handles:
                offset, handle = model.handles[told[0] % len(model.handles)]
                is_valid = model.is_valid(offset, handle, now)
                await STEP[kind](member, model, (offset, handle, is_valid), told)
    await asyncio.sleep(0.05)
    assert member.offset == model.committed
    dead = messages(await broker.pull("%DLQ%g", 0, 0)) if model.dead else []
    assert [each.body for each in dead] == [b"%d" % offset for offset in model.dead]
    context = broker.broker.context
    key = ("g", "orders", 0)
    pending, applied = context.batcher.pop_queue(key), context.machine.state.pop.queues[key]
    assert pending is not None
    assert pending.queue == applied
    assert list(applied.deliveries) == sorted(model.out)


Named = tuple[int, str, bool]


async def ack(member: Member, model: Model, named: Named, _told: list[Any]) -> None:
    offset, handle, is_valid = named
    assert await member.ack(handle) == [OK if is_valid else EXPIRED]
    if is_valid:
        model.end(offset)


async def change(member: Member, model: Model, named: Named, told: list[Any]) -> None:
    offset, handle, is_valid = named
    result = await member.pop.change_invisible("g", "orders", handle, told[1] * 1000)
    assert result.status is (OK if is_valid else EXPIRED)
    if is_valid:
        model.out[offset].visible = result.invisible_until_ms / 1000
        model.out[offset].handle = result.receipt_handle
        model.handles.append((offset, result.receipt_handle))


async def give_up(member: Member, model: Model, named: Named, _told: list[Any]) -> None:
    offset, handle, is_valid = named
    result = await member.pop.to_dead_letter("g", "orders", handle)
    assert result.status is (OK if is_valid else EXPIRED)
    if is_valid:
        model.end(offset)
        model.dead.append(offset)


async def refuse(member: Member, _model: Model, named: Named, _told: list[Any]) -> None:
    """An acknowledgement that is refused before it is in the log changes nothing."""
    _offset, handle, is_valid = named
    acknowledging = asyncio.ensure_future(member.ack(handle))
    await asyncio.sleep(0)
    member.broker.broker.context.batcher._refuse_pending(NotLeaderError(None))
    (outcome,) = await asyncio.gather(acknowledging, return_exceptions=True)
    assert isinstance(outcome, NotLeaderError) if is_valid else outcome == [EXPIRED]


STEP: dict[str, Callable[[Member, Model, Named, list[Any]], Coroutine[Any, Any, None]]] = {
    "ack": ack,
    "change": change,
    "give up": give_up,
    "refuse": refuse,
}


@searching(60)
@example([("send", "a"), ("send", "a"), ("receive", 1, True), ("receive", 1, False)])
@example(
    [
        *([SEND, SEND, ("sleep", 11)] * 2),
        *(SEND, SEND, ("sleep", 1), SEND, ("commit", 5), SEND, ("sleep", 5)),
        *([SEND] * 12),
        ("receive", 4, True),
    ]
)
@given(STEPS)
def test_any_row_of_requests_gives_what_the_model_gives(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(loop: NetworkedLoop) -> None:
        with TemporaryDirectory() as directory:
            async with running_broker(loop, Path(directory), clock_runs=True) as broker:
                await follow(broker, steps)

    run_in_virtual_time(scenario)
