"""Deduplication of requests: a retry is not stored again, and gets the answer of the first try.

A request is suspected if the deduplication window has the hash of its first key. It is a retry if
the log has the same messages: topic, UNIQ_KEY, other properties and bodies are equal; the queue may
differ. The project's own producer makes the UNIQ_KEY of its id and a sequence number.

The first try may still be in progress. So a suspected request waits until everything added before
it is applied, and is then looked up. A third try waits with the second.

A request is stored again if its first try is older than the window or has expired from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from broker.delivery.message_reader import LogRange, MessageReader
from broker.group_commit.batcher import REQUEST_BYTES, Batcher
from broker.group_commit.pending_batch import NewMessages, SendWaiter, StoredEarlier
from broker.ingest.stored_request import same_in_retries, stored_request
from broker.limits import PRODUCE
from broker.scheduled.republisher import REPUBLISHED_TOPICS, real_queue
from broker.state.deduplication_window import EntryPosition
from broker.state.state_machine import BrokerStateMachine
from dledger.errors import BusyError, NotServingError, ProposeError
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.log.entry import HEADER, HEADER_SIZE, EntryKind
from store.message.batch import pending_bytes
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord, PendingMessage, key_hash
from store.message.scheduled_topics import TIMER_TOPIC


class RetryUndecidedError(ProposeError):
    """It is unknown whether an earlier try was stored. Nothing was written now."""

    def __init__(self, fault: StoreError) -> None:
        super().__init__(f"it is unknown now whether this was sent before: {fault.told}")
        self.__cause__ = fault


class SameHashError(ProposeError):
    """A request whose key has the same hash is being looked up. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("a request with a similar key is being looked up, ask again")


class QueueGoneError(ProposeError):
    """The topic was deleted, or lost the queue, during the look-up. Nothing was written."""

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(f"the topic {topic} no longer has queue {queue_id}")


class _SuspectedRetry:
    """A request that is being looked up or stored, and the waiters for its outcome."""

    def __init__(self, new: NewMessages, waiter: SendWaiter, *, term: int) -> None:
        self.new = new
        self.term = term
        self.waiters = [waiter]

    def is_same(self, messages: Sequence[PendingMessage]) -> bool:
        topic, mine = self.new.topic, self.new.messages
        return len(messages) == len(mine) and all(
            same_in_retries(topic, one) == same_in_retries(topic, other)
            for one, other in zip(mine, messages, strict=True)
        )


class Deduplicator:
    """Recognises retries, on the leader."""

    def __init__(
        self,
        batcher: Batcher,
        machine: BrokerStateMachine,
        reader: MessageReader,
        *,
        wall_clock: Callable[[], int],
        window_ms: int,
        store_host: bytes,
    ) -> None:
        self._batcher = batcher
        self._machine = machine
        self._reader = reader
        self._wall_clock = wall_clock
        self._window_ms = window_ms
        self._store_host = store_host
        self._suspects: dict[tuple[str, bytes], _SuspectedRetry] = {}
        self._hashes: set[int] = set()
        """The key hashes of the suspects. Keys of one hash can be made at will, and each look-up
        may read all records of an entry. So there is one at a time."""
        self._suspect_bytes = 0

    def add(self, new: NewMessages, waiter: SendWaiter) -> None:
        """Adds a request, and with it the topics that it creates; a suspected retry is looked up
        first.

        Raises as :meth:`~broker.group_commit.batcher.Batcher.add_messages`, and
        :class:`SameHashError`.
        """
        topic, _, messages, _ = new
        hashes = messages[0].key_hashes
        place = self._batcher.deduplication_index.get(hashes[0]) if hashes else None
        key = find_property(messages[0].properties, UNIQUE_KEY) if place is not None else None
        if place is None or not key:
            self._batcher.add_messages(new, waiter)
            return
        known = self._suspects.get((topic, key))
        if known is None:
            size = pending_bytes(messages)
            self._batcher.check_size(size + REQUEST_BYTES)
            if self._suspect_bytes + size > PRODUCE.suspect_bytes_max:
                raise BusyError(
                    self._suspect_bytes,
                    PRODUCE.suspect_bytes_max,
                    "bytes of requests wait until it is known whether they are stored",
                )
            if hashes[0] in self._hashes:
                raise SameHashError
            term = self._batcher.term
            suspect = _SuspectedRetry(new, waiter, term=term)
            self._batcher.add_barrier(partial(self._earlier_applied, suspect, key, place))
            self._suspects[topic, key] = suspect
            self._hashes.add(hashes[0])
            self._suspect_bytes += size
        elif known.is_same(messages):
            known.waiters.append(waiter)
        else:
            self._batcher.add_messages(new, waiter)

    def knows_timed(self, properties: bytes) -> bool:
        """Whether an earlier try of a message with these properties may be on the timer wheel."""
        key = find_property(properties, UNIQUE_KEY)
        if not key:
            return False
        return self._batcher.deduplication_index.get(key_hash(TIMER_TOPIC, key)) is not None

    def _finish(self, suspect: _SuspectedRetry, key: bytes) -> None:
        del self._suspects[suspect.new.topic, key]
        self._hashes.discard(suspect.new.messages[0].key_hashes[0])
        self._suspect_bytes -= pending_bytes(suspect.new.messages)

    def _earlier_applied(
        self, suspect: _SuspectedRetry, key: bytes, place: EntryPosition, error: ProposeError | None
    ) -> None:
        """Everything added before is applied or refused."""
        if error is not None:
            self.fail(suspect, key, error)
            return
        position = place.position
        machine, load = self._machine, self._reader.load

        def unreadable(fault: StoreError) -> None:
            if position < machine.expired_position:
                self._store(suspect, key)
            else:
                self.fail(suspect, key, RetryUndecidedError(fault))

        def found_header(parts: Sequence[Bytes], fault: StoreError | None) -> None:
            if fault is not None:
                unreadable(fault)
                return
            magic, _size, _index, _term, at, _channel, _chain, _crc, size = HEADER.unpack(parts[0])
            if magic != EntryKind.DATA or at != position:
                self._store(suspect, key)
                return
            load([LogRange(position + HEADER_SIZE, size)], found_body)

        def found_body(parts: Sequence[Bytes], fault: StoreError | None) -> None:
            first = None
            try:
                if fault is None:
                    first = self._find(suspect, parts[0], position + HEADER_SIZE)
            except StoreError as damage:
                fault = damage
            if fault is not None:
                unreadable(fault)
            elif first is None:
                self._store(suspect, key)
            else:
                self._answer(suspect, key, first)

        if machine.expired_position <= position < machine.applied_end:
            load([LogRange(position, HEADER_SIZE)], found_header)
        else:
            self._store(suspect, key)

    def _find(self, suspect: _SuspectedRetry, body: Bytes, start: int) -> MessageRecord | None:
        since_ms = self._wall_clock() - self._window_ms
        return stored_request(body, start, suspect.new.topic, suspect.new.messages, since_ms)

    def _answer(self, suspect: _SuspectedRetry, key: bytes, first: MessageRecord) -> None:
        self._finish(suspect, key)
        queue_id = _queue_of(suspect.new.topic, first.queue_id, first.properties)
        positions = [first.position]
        for message in suspect.new.messages[:-1]:
            positions.append(positions[-1] + message.size)
        for waiter in suspect.waiters:
            waiter.stored(first.queue_offset, positions, StoredEarlier(first.store_host, queue_id))

    def _store(self, suspect: _SuspectedRetry, key: bytes) -> None:
        """Stores the request for all waiters: no earlier try was stored.

        If another term began during the look-up, that term's leader may have stored it.
        """
        if self._batcher.term != suspect.term:
            self.fail(suspect, key, NotServingError())
            return
        new, topic, queue_id = suspect.new, suspect.new.topic, suspect.new.queue_id
        config = self._batcher.topic(topic)
        # Another message may have created a topic since.
        creates = [each for each in new.creates if self._batcher.topic(each.name) is None]
        if not (topic in REPUBLISHED_TOPICS or creates) and (
            config is None or queue_id >= config.queues
        ):
            self.fail(suspect, key, QueueGoneError(topic, queue_id))
            return
        storing = _Storing(self, suspect, key)
        try:
            self._batcher.add_messages(new._replace(creates=creates), storing)
        except ProposeError as error:
            self.fail(suspect, key, error)

    def stored(
        self, suspect: _SuspectedRetry, key: bytes, first_offset: int, positions: Sequence[int]
    ) -> None:
        """The request was stored now, not earlier."""
        self._finish(suspect, key)
        new = suspect.new
        queue_id = _queue_of(new.topic, new.queue_id, new.messages[0].properties)
        suspect.waiters[0].stored(first_offset, positions)
        for waiter in suspect.waiters[1:]:
            waiter.stored(first_offset, positions, StoredEarlier(self._store_host, queue_id))

    def fail(self, suspect: _SuspectedRetry, key: bytes, error: ProposeError) -> None:
        """Fails all waiters."""
        self._finish(suspect, key)
        for waiter in suspect.waiters:
            waiter.failed(error)


class _Storing:
    """The waiter while a suspected request is stored; it answers all senders of the request."""

    __slots__ = ("_key", "_requests", "_suspect")

    def __init__(self, requests: Deduplicator, suspect: _SuspectedRetry, key: bytes) -> None:
        self._requests = requests
        self._suspect = suspect
        self._key = key

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        self._requests.stored(self._suspect, self._key, first_offset, positions)

    def failed(self, error: ProposeError) -> None:
        self._requests.fail(self._suspect, self._key, error)


def _queue_of(topic: str, queue_id: int, properties: bytes) -> int:
    """The real queue of a message. A scheduled message waits in another queue."""
    return real_queue(properties)[1] if topic in REPUBLISHED_TOPICS else queue_id
