"""What a follower asks its leader before it answers a read, and what it takes for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dledger.errors import ProposeError, ReadUnconfirmedError
from dledger.node.linearizable_reads import TIMEOUT_ELECTIONS
from dledger.raft.messages import AppendRequest, ReadRequest, ReadResponse
from dledger.wire.transport import Message
from simulator.engine.event_loop import VirtualLoop
from store.log.entry import EntryKind, build_entry
from tests.dledger.node.member import Member, Peers

TERM = 3
LEADER = "n1"
COMMITTED = build_entry(EntryKind.DATA, 0, TERM, 0, 0, [b"old"])
NEXT = build_entry(EntryKind.DATA, 1, TERM, COMMITTED.end, COMMITTED.chain_crc, [b"new"])


class Leading(Peers):
    """The leader answers no question until it is told to."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.questions: list[int] = []

    def _answer(self, peer: str, message: Message) -> None:
        if isinstance(message, ReadRequest):
            assert peer == LEADER
            self.questions.append(message.id)

    def say(self, message: Message) -> None:
        assert self._handler is not None
        self._handler.on_message(LEADER, message)


class Reader(Member):
    """One process of the follower."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.leader = Leading(loop)
        super().__init__(loop, self.leader)
        self.answers: list[ProposeError | None] = []

    async def ask(self) -> int:
        """A read comes in; the number by which the leader is asked."""
        self.node.reads.add(self.answers.append)
        await asyncio.sleep(0.01)
        return self.leader.questions[-1]


@asynccontextmanager
async def following(loop: VirtualLoop) -> AsyncIterator[Reader]:
    """A process that has heard of its leader and has applied entry 0."""
    reader = Reader(loop)
    await reader.node.start()
    reader.leader.say(AppendRequest(TERM, -1, 0, 0, (COMMITTED,)))
    await asyncio.sleep(0.01)
    assert reader.node.applied_index == 0
    yield reader
    await reader.node.stop()
    assert reader.node.failure is None


async def test_an_answer_to_an_earlier_process_answers_no_question(loop: VirtualLoop) -> None:
    async with following(loop) as earlier:
        before = await earlier.ask()
    async with following(loop) as later:
        number = await later.ask()
        later.leader.say(ReadResponse(TERM, before, 0))
        assert later.answers == []
        later.leader.say(ReadResponse(TERM, number, 0))
        assert later.answers == [None]


async def test_each_question_has_a_number_of_its_own(loop: VirtualLoop) -> None:
    async with following(loop) as reader:
        first = await reader.ask()
        reader.leader.say(ReadResponse(TERM, first, 0))
        second = await reader.ask()
        assert second > first
        reader.leader.say(ReadResponse(TERM, first, 0))
        assert reader.answers == [None]


async def test_a_question_has_all_of_its_time_though_an_earlier_read_waited(
    loop: VirtualLoop,
) -> None:
    async with following(loop) as reader:
        seconds = TIMEOUT_ELECTIONS * reader.node.core.config.election_seconds
        began = loop.time()
        first = await reader.ask()
        reader.leader.say(ReadResponse(TERM, first, 1))  # which is not here yet
        reader.leader.say(AppendRequest(TERM, 0, TERM, 1, (NEXT,)))
        await asyncio.sleep(0.01)
        assert reader.answers == [None]
        while loop.time() < began + seconds - 0.05:
            reader.leader.say(AppendRequest(TERM, 1, TERM, 1, ()))
            await asyncio.sleep(0.02)
        second = await reader.ask()
        await asyncio.sleep(0.1)
        assert reader.answers == [None]
        reader.leader.say(ReadResponse(TERM, second, 1))
        assert reader.answers == [None, None]


async def test_reads_whose_entries_never_come_all_fail(loop: VirtualLoop) -> None:
    async with following(loop) as reader:
        seconds = TIMEOUT_ELECTIONS * reader.node.core.config.election_seconds
        for _ in range(3):
            number = await reader.ask()
            reader.leader.say(ReadResponse(TERM, number, 1))
        await asyncio.sleep(seconds)
        assert [type(answer) for answer in reader.answers] == 3 * [ReadUnconfirmedError]


async def test_reads_that_come_while_a_question_is_open_share_the_next(loop: VirtualLoop) -> None:
    async with following(loop) as reader:
        first = await reader.ask()
        assert [await reader.ask() for _ in range(2)] == [first, first]
        reader.leader.say(ReadResponse(TERM, first, 0))
        assert reader.answers == [None]
        await asyncio.sleep(0.01)
        assert len(reader.leader.questions) == 2
        reader.leader.say(ReadResponse(TERM, reader.leader.questions[-1], 0))
        assert reader.answers == 3 * [None]
