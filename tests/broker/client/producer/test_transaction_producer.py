"""Transactions of the Python client, with a real broker in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from broker.client.client_identity import ClientIdentity
from broker.client.errors import (
    ClosedError,
    DeadlineError,
    IllegalMessageError,
    RefusedError,
    TransactionEndedError,
)
from broker.client.message import Message
from broker.client.producer.transaction_producer import Outcome, TransactionProducer
from broker.client.received_message import ReceivedMessage
from store.errors import DamagedError, StoreError
from store.io.filesystem import Bytes
from store.message.record import MessageRecord
from tests.broker.client.real_broker import (
    NAME_SERVER,
    TOPIC,
    break_connections,
    served_broker,
)
from tests.broker.single_broker import SingleBroker, messages
from tests.support.virtual_network import NetworkedLoop

TIMEOUT_SECONDS = 6


class Books:
    """A program's own records: how it answers what it is asked."""

    def __init__(self, outcomes: Mapping[bytes, Sequence[Outcome]] | None = None) -> None:
        """``outcomes``: of each body what is answered first, then, and so on."""
        self.outcomes = {body: list(each) for body, each in (outcomes or {}).items()}
        self.asked: list[tuple[str, bytes]] = []

    async def check(self, message: ReceivedMessage) -> Outcome:
        self.asked.append((message.topic, message.body))
        return self.outcomes[message.body].pop(0)


def unreadable(position: int, done: Callable[[Bytes, StoreError | None], None]) -> None:
    """What a look-up of a record is on a disk that fails."""
    done(b"", DamagedError("log/0", position, "rotten"))


def payer(books: Books, number: int = 1) -> TransactionProducer:
    return TransactionProducer(
        NAME_SERVER,
        books.check,
        rng=Random(number),
        identity=ClientIdentity("10.0.0.9", 77, number),
    )


async def records(broker: SingleBroker) -> list[MessageRecord]:
    return messages(await broker.pull(TOPIC, 0, 0))


async def stored(broker: SingleBroker) -> list[bytes]:
    return [record.body for record in await records(broker)]


async def test_a_block_that_ends_well_publishes_its_message_and_one_that_raises_does_not(
    broker: SingleBroker,
) -> None:
    async with payer(Books()) as producer:
        async with producer.transaction(Message(TOPIC, b"paid", keys="k")) as transaction:
            assert await stored(broker) == []
        assert transaction.outcome is Outcome.COMMIT
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(TOPIC, b"not paid")):
                raise ZeroDivisionError
        async with producer.transaction(Message(TOPIC, b"not paid either")) as transaction:
            await transaction.rollback()
    (record,) = await records(broker)
    assert (record.body, record.property_map["KEYS"]) == (b"paid", "k")
    assert broker.broker.context.machine.state.transactions == {}


async def test_a_producer_answers_what_another_of_its_group_left_open(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    large = b"x" * 5000
    books = Books({large: (Outcome.UNKNOWN, Outcome.COMMIT), b"c": (Outcome.ROLLBACK,)})

    async with served_broker(
        loop, tmp_path, transaction_timeout_ms=TIMEOUT_SECONDS * 1000
    ) as broker:
        async with payer(Books(), 1) as first:
            for body in (large, b"c"):
                await first.transaction(Message(TOPIC, body)).begin()
        async with payer(books, 2) as second:
            async with second.transaction(Message(TOPIC, b"b")):
                await asyncio.sleep(2 * TIMEOUT_SECONDS)
            await asyncio.sleep(60)
        published = [record.prepared_position > 0 for record in await records(broker)]
        assert published == [True, True]
        assert sorted(books.asked) == [(TOPIC, b"c"), (TOPIC, large), (TOPIC, large)]


async def test_a_check_that_fails_is_made_again(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    books = Books({b"a": ()})

    async with served_broker(
        loop, tmp_path, transaction_timeout_ms=TIMEOUT_SECONDS * 1000
    ) as broker:
        async with payer(Books(), 1) as first:
            await first.transaction(Message(TOPIC, b"a")).begin()
        async with payer(books, 2) as second:
            async with second.transaction(Message(TOPIC, b"b")):
                pass
            await asyncio.sleep(2 * TIMEOUT_SECONDS)
            assert len(books.asked) == 1
            books.outcomes[b"a"].append(Outcome.COMMIT)
            await asyncio.sleep(60)
        assert sorted(await stored(broker)) == [b"a", b"b"]
    assert "the check of transaction" in caplog.text


async def test_a_transaction_that_was_dropped_is_asked_about(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    books = Books({b"dropped": (Outcome.COMMIT,)})

    async with (
        served_broker(loop, tmp_path, transaction_timeout_ms=TIMEOUT_SECONDS * 1000) as broker,
        payer(books) as producer,
    ):
        await producer.transaction(Message(TOPIC, b"dropped")).begin()
        kept = producer.transaction(Message(TOPIC, b"kept"))
        await kept.begin()
        await asyncio.sleep(10 * TIMEOUT_SECONDS)
        assert books.asked == [(TOPIC, b"dropped")]
        assert await stored(broker) == [b"dropped"]
        await kept.rollback()


class SlowBooks(Books):
    """Each check waits until its answer is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[Outcome]] = []

    async def check(self, message: ReceivedMessage) -> Outcome:
        del message
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


async def test_a_slow_check_is_not_made_twice_at_a_time(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    settings = {"transaction_timeout_ms": 6_000, "transaction_check_interval_ms": 5_000}
    async with served_broker(loop, tmp_path, **settings) as broker:
        books = SlowBooks()
        async with payer(books) as producer:
            await producer.transaction(Message(TOPIC, b"a")).begin()
            await asyncio.sleep(60)
            assert len(books.answers) == 1
            books.answers[0].set_result(Outcome.UNKNOWN)
            await asyncio.sleep(10)
            assert len(books.answers) == 2
            books.answers[1].set_result(Outcome.COMMIT)
            await asyncio.sleep(1)
            assert await stored(broker) == [b"a"]


async def test_an_outcome_is_told_though_the_connection_of_the_question_is_gone(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """The broker may have been left, because it leads no more."""
    settings = {"transaction_timeout_ms": 6_000, "transaction_check_interval_ms": 60_000}
    async with served_broker(loop, tmp_path, **settings) as broker:
        books = SlowBooks()
        async with payer(books) as producer:
            await producer.transaction(Message(TOPIC, b"a")).begin()
            await asyncio.sleep(10)
            break_connections(broker)
            await asyncio.sleep(1)
            books.answers[0].set_result(Outcome.COMMIT)
            await asyncio.sleep(1)
            assert await stored(broker) == [b"a"]


async def test_a_block_that_runs_for_too_long_is_rolled_back_under_it(broker: SingleBroker) -> None:
    async with payer(Books()) as producer:
        with pytest.raises(TransactionEndedError, match="rolled back already"):
            async with producer.transaction(Message(TOPIC, b"late")):
                await asyncio.sleep(7.5 * 60 + 10)
        async with producer.transaction(Message(TOPIC, b"in time")):
            await asyncio.sleep(7.5 * 60 - 10)
    assert await stored(broker) == [b"in time"]


async def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(
    broker: SingleBroker,
) -> None:
    async with payer(Books()) as producer:
        transaction = producer.transaction(Message(TOPIC, b"paid"))
        await transaction.begin()
        broker.log_executor.hold()
        committing = asyncio.ensure_future(transaction.commit())
        await asyncio.sleep(0.01)
        break_connections(broker)
        broker.log_executor.release()
        await committing
        await transaction.commit()
        with pytest.raises(TransactionEndedError, match="the other outcome"):
            await transaction.rollback()
    assert await stored(broker) == [b"paid"]


@pytest.mark.parametrize("after_seconds", [0.01, 10])
async def test_closing_the_producer_ends_a_commit_that_waits_for_a_leader(
    broker: SingleBroker, after_seconds: float
) -> None:
    """At first it waits for an answer, later for the outage to end."""

    async with payer(Books()) as producer:
        transaction = producer.transaction(Message(TOPIC, b"paid"))
        await transaction.begin()
        await broker.server.stop()
        if after_seconds > 1:
            break_connections(broker)
        else:
            broker.log_executor.hold()
        committing = asyncio.ensure_future(transaction.commit())
        await asyncio.sleep(after_seconds)
    await asyncio.wait((committing,))
    assert isinstance(committing.exception(), ClosedError)
    broker.log_executor.release()


async def test_a_transaction_that_ended_the_other_way_says_so(broker: SingleBroker) -> None:
    async with payer(Books()) as producer:
        first = producer.transaction(Message(TOPIC, b"a"))
        await first.begin()
        await first.rollback()
        same = producer.transaction(first.message)
        same.result = first.result
        with pytest.raises(TransactionEndedError, match="rolled back already"):
            await same.commit()


@pytest.mark.parametrize("outcome", [Outcome.COMMIT, Outcome.ROLLBACK])
async def test_a_half_message_that_cannot_be_read_for_a_while_is_tried_again(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    async with payer(Books()) as producer:
        transaction = producer.transaction(Message(TOPIC, b"paid"))
        await transaction.begin()
        with monkeypatch.context() as fault:
            fault.setattr(broker.broker.context.lookup, "record", unreadable)
            ending = transaction.commit if outcome is Outcome.COMMIT else transaction.rollback
            trying = asyncio.ensure_future(ending())
            await asyncio.sleep(2)
            assert not trying.done()
        await trying
    assert broker.broker.context.machine.state.transactions == {}
    assert await stored(broker) == ([b"paid"] if outcome is Outcome.COMMIT else [])


async def test_a_half_message_that_stays_unreadable_is_not_said_to_have_ended(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.broker.context.lookup, "record", unreadable)
    async with payer(Books()) as producer:
        transaction = producer.transaction(Message(TOPIC, b"paid"))
        await transaction.begin()
        with pytest.raises(DeadlineError, match="half message cannot be read now: byte"):
            await transaction.rollback()
        assert list(broker.broker.context.machine.state.transactions) == [0]


async def test_what_was_not_begun_or_may_not_be_is_refused_at_once(broker: SingleBroker) -> None:
    async with payer(Books()) as producer:
        with pytest.raises(TransactionEndedError, match="not begun"):
            await producer.transaction(Message(TOPIC, b"a")).commit()
        with pytest.raises(IllegalMessageError, match="delay level"):
            await producer.transaction(Message(TOPIC, b"a", delay_level=3)).begin()
        timed = Message(TOPIC, b"a", properties={"TIMER_DELAY_SEC": "60"})
        with pytest.raises(RefusedError, match="cannot have a delivery time"):
            await producer.transaction(timed).begin()


async def test_a_leader_that_is_met_again_hears_of_the_producer_at_once(
    broker: SingleBroker,
) -> None:
    async with payer(Books()) as producer:
        async with producer.transaction(Message(TOPIC, b"a")):
            pass
        producers = broker.broker.context.clients.producers
        assert list(producers) == ["dledger-producer"]
        break_connections(broker)
        await asyncio.sleep(0.5)
        assert list(producers) == ["dledger-producer"]
    assert list(producers) == []
