"""Consumers that behave on the wire as RocketMQ's Java push consumer, 4.9, does.

They report their offsets with their pulls and one-way. Their pulls are held. They filter by tag
once more, send messages back, and share the queues out by themselves. Those that consume in order
lock their queues first. Times are shorter than Java's: seconds stand for tens of seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from broker.client.consumer.offset_reset_body import reset_offsets
from broker.client.errors import ClientError
from broker.client.message import MessageQueue
from broker.remoting.connection import Connection
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from simulator.hosts.broker_host import GROUP as BROKER
from simulator.hosts.client_host import ClientHost
from simulator.workload import java_requests as wire
from simulator.workload.client_connections import ClientConnections
from simulator.workload.process_queue import ProcessQueue
from simulator.workload.push_messages import RETRIES_MAX, RETRY_LEVEL
from simulator.workload.push_settings import (
    BELIEF_SECONDS,
    PERSIST_SECONDS,
    REBALANCE_SECONDS,
    REBASE_SECONDS,
    RETRY_PREFIX,
    ROUTES_SECONDS,
    WAITING_MAX,
    PushSettings,
)
from store.message.record import MessageRecord, decode_record, record_bounds


class PushMember:
    """A member of a group, in one process."""

    def __init__(self, client: PushSettings, client_host: ClientHost) -> None:
        self._client = client
        self._listener = client.listener
        self._rng = client.rng
        self._client_host = client_host
        self._loop = asyncio.get_running_loop()
        self._name = f"{client_host.name}.{client_host.boot}"
        handlers = {wire.MEMBERS_CHANGED: self._members_changed, wire.RESET_CLIENT: self._reset}
        connections = ClientConnections(client_host, client.rng, handlers)
        self._connections, self._routes = connections, connections.routes
        # Java's clients may have a name, and then keep their id after a restart.
        client_id = f"{client_host.ip}@{client.group}"
        self._wire = wire.JavaRequests(connections, client.group, client_id)
        self._version = client_host.boot
        self._process_queues: dict[MessageQueue, ProcessQueue] = {}
        self._doubtful: dict[MessageQueue, None] = {}
        """Queues that may be locked for this member at the broker, though it does not own them."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._routes_due = self._loop.time() + ROUTES_SECONDS
        self._closing = False
        self._woken: asyncio.Future[None] = self._loop.create_future()
        self.notifications = 0
        """How often a broker notified of changed members."""

    async def run(self) -> None:
        self._run(self._persist_regularly())
        while not self._closing:
            try:
                await self._rebalance()
            except (CallError, ClientError) as error:
                self._client_host.note(f"cannot share out the queues: {error}")
                await self._recover()
            if not self._closing:
                await asyncio.wait([self._woken], timeout=REBALANCE_SECONDS)
            self._woken = self._loop.create_future()
        await self._leave()

    def close(self) -> None:
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.result()

    async def _recover(self) -> None:
        for topic in self._client.topics:
            if not topic.startswith(RETRY_PREFIX):
                await self._routes.recover(topic, BROKER)

    # --- which member has which queue

    def _members_changed(self, _: Connection, _request: Frame) -> None:
        self.notifications += 1
        self._wake()

    async def _rebalance(self) -> None:
        if self._loop.time() >= self._routes_due:
            await self._look_up_routes()
        await self._greet()
        for topic in self._client.topics:
            route = self._routes.cached(topic)
            if route is None:
                continue
            leader = route.leader(BROKER)
            members = None if leader is None else await self._wire.members(leader)
            if leader is None or members is None:
                await self._routes.refresh(topic)
                continue
            share = wire.share_of(route.read_queues, members, self._wire.client_id)
            for queue in [each for each in self._process_queues if each.topic == topic]:
                if queue not in share:
                    await self._give_up(self._process_queues[queue])
            for queue in [each for each in self._doubtful if each.topic == topic]:
                if queue not in share:  # an answer was lost
                    self._listener.unlocks(self._name, queue)
                    self._wire.unlock(leader, queue)
            for queue in share:
                if queue not in self._process_queues and not self._closing:
                    await self._take(queue)
        if self._client.in_order:
            await self._renew()

    async def _look_up_routes(self) -> None:
        self._routes_due = self._loop.time() + ROUTES_SECONDS
        for topic in self._client.topics:
            if self._routes.cached(topic) is not None:
                await self._routes.refresh(topic)

    async def _greet(self) -> None:
        """Sends heartbeats to all brokers, as Java's consumers do; that makes the retry topic."""
        addresses: dict[str, None] = {}
        lost = False
        for topic in self._client.topics:
            try:
                route = await self._routes.get(topic)
            except ClientError:
                if not topic.startswith(RETRY_PREFIX):
                    raise
                continue
            addresses |= dict.fromkeys(route.brokers.get(BROKER, {}).values())
        for address in addresses:
            try:
                await self._wire.heartbeat(address, self._client.topics, self._version)
            except CallError as error:
                lost = True
                self._client_host.note(f"{address} hears no heartbeat: {error}")
        if lost:
            await self._look_up_routes()

    async def _take(self, queue: MessageQueue) -> None:
        leader, lock, asked_at = self._routes.leader(queue), None, self._loop.time()
        if self._client.in_order:
            asked = self._listener.asks(self._name, queue, leader)
            self._doubtful[queue] = None
            held = await self._wire.lock(leader, [queue])
            if held is None:
                await self._routes.refresh(queue.topic)
            if held is None or queue not in held:
                return
            lock = self._listener.locked(self._name, queue, asked)
        answer = await self._wire.committed(leader, queue)
        offset = int(str((answer.ext or {})["offset"])) if answer.code == wire.SUCCESS else 0
        process_queue = self._process_queues[queue] = ProcessQueue(queue, offset, offset)
        process_queue.lock, process_queue.locked_at = lock, asked_at
        self._doubtful.pop(queue, None)
        self._listener.takes(self._name, queue)
        self._client_host.note(f"takes {queue.topic}/{queue.queue_id} from {offset} on")
        self._run(self._pull(process_queue))
        if self._client.in_order:
            self._run(self._consume_in_order(process_queue))

    async def _give_up(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        process_queue.dropped = True
        await self._idle(process_queue)
        self._client_host.note(f"gives up {queue.topic}/{queue.queue_id}")
        self._release(process_queue)

    def _release(self, process_queue: ProcessQueue) -> None:
        """Commits the offset of a queue, and unlocks it for other members."""
        queue = process_queue.queue
        self._process_queues.pop(queue, None)
        if self._client.in_order:
            self._doubtful[queue] = None  # what follows may never reach the broker
        with suppress(ClientError):
            leader = self._routes.leader(queue)
            self._wire.commit(leader, queue, process_queue.done)
            if self._client.in_order:
                self._listener.unlocks(self._name, queue)
                self._wire.unlock(leader, queue)

    async def _idle(self, process_queue: ProcessQueue) -> None:
        """Whether the program is done with its present message."""
        while process_queue.busy:  # noqa: ASYNC110 - as Java's clients wait for the queue's lock
            await asyncio.sleep(0.01)

    async def _renew(self) -> None:
        for queue, process_queue in list(self._process_queues.items()):
            leader, asked_at = self._routes.leader(queue), self._loop.time()
            asked = self._listener.asks(self._name, queue, leader)
            held = await self._wire.lock(leader, [queue])
            if held is None:
                await self._routes.refresh(queue.topic)
            elif queue in held:
                process_queue.lock, process_queue.locked_at = (
                    self._listener.locked(self._name, queue, asked),
                    asked_at,
                )
            else:
                process_queue.locked_at = -BELIEF_SECONDS

    def _may_consume(self, process_queue: ProcessQueue) -> bool:
        at = process_queue.locked_at
        believed = at >= 0 and self._loop.time() - at < BELIEF_SECONDS
        return believed or not self._client.in_order

    # --- messages

    async def _pull(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        while not process_queue.dropped and not self._closing:
            if len(process_queue.waiting) >= WAITING_MAX or not self._may_consume(process_queue):
                await asyncio.sleep(0.05)
                continue
            asked_at = self._client_host.true_time
            try:
                leader = self._routes.leader(queue)
                answer = await self._wire.pull(
                    leader, queue, process_queue.next_offset, process_queue.done, self._version
                )
            except (CallError, ClientError):
                await self._routes.recover(queue.topic, BROKER)
                continue
            if process_queue.dropped:
                return
            if answer.code == wire.SUCCESS:
                first = self._found(process_queue, answer)
                place = (queue.topic, queue.queue_id, first)
                self._listener.answered(self._name, leader, place, asked_at)
            elif answer.code == wire.OFFSET_MOVED:
                await self._begin_at(process_queue, wire.next_offset(answer))
            elif answer.code in {wire.NOT_FOUND, wire.RETRY_AT_ONCE}:
                process_queue.next_offset = wire.next_offset(answer)
                if not process_queue.waiting:
                    process_queue.done = max(process_queue.done, process_queue.next_offset)
                await asyncio.sleep(0.02)
            else:
                self._client_host.note(f"a pull is answered with {answer.code}: {answer.remark}")
                self._wake()  # a new leader does not know the subscription before a heartbeat
                await asyncio.sleep(0.3)
                await self._routes.recover(queue.topic, BROKER)

    def _found(self, process_queue: ProcessQueue, answer: Frame) -> int:
        """The offset of the first message."""
        first = -1
        queue, tags = process_queue.queue, self._client.topics[process_queue.queue.topic]
        wanted: list[MessageRecord] = []
        for start, _end in record_bounds(answer.body):
            record = decode_record(answer.body, start)
            first = record.queue_offset if first < 0 else first
            place = (queue.topic, queue.queue_id, record.queue_offset)
            self._listener.given(self._name, place, record)
            if not tags or record.property_map.get("TAGS") in tags:
                wanted.append(record)
        process_queue.next_offset = wire.next_offset(answer)
        process_queue.waiting |= {record.queue_offset: record for record in wanted}
        if wanted and not self._client.in_order:
            self._run(self._consume(process_queue, wanted))
        return first

    async def _consume(self, process_queue: ProcessQueue, records: list[MessageRecord]) -> None:
        for record in records:
            if process_queue.dropped:
                return
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.uniform(0.0, 0.2))
                if process_queue.dropped:
                    return
            self._deliver(process_queue, record)
            if self._listener.fails(record):
                await self._send_back(process_queue, record)
            if not process_queue.dropped:
                self._finish(process_queue, record.queue_offset)

    def _deliver(self, process_queue: ProcessQueue, record: MessageRecord) -> None:
        queue = process_queue.queue
        self._listener.delivered(
            self._name, (queue.topic, queue.queue_id, record.queue_offset), record
        )

    def _finish(self, process_queue: ProcessQueue, offset: int) -> None:
        """A message is done. All before the first unfinished one are done."""
        del process_queue.waiting[offset]
        done = min(process_queue.waiting, default=offset + 1)
        process_queue.done = max(process_queue.done, done)

    async def _send_back(self, process_queue: ProcessQueue, record: MessageRecord) -> None:
        while not process_queue.dropped:
            self._listener.sends_back(record)
            try:
                answer = await self._wire.send_back(
                    self._routes.leader(process_queue.queue), record, RETRY_LEVEL, RETRIES_MAX
                )
            except (CallError, ClientError):
                await self._routes.recover(process_queue.queue.topic, BROKER)
                continue
            if answer.code == wire.SUCCESS:
                self._listener.sent_back(record)
                self._client_host.coverage_mark("message sent back")
                return
            if answer.code == wire.SYSTEM_ERROR and self._listener.is_gone(record):
                self._client_host.coverage_mark("message removed before it was sent back")
                return
            await self._routes.recover(process_queue.queue.topic, BROKER)

    async def _consume_in_order(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        failed: dict[int, None] = {}
        while not process_queue.dropped and not self._closing:
            if not process_queue.waiting or not self._may_consume(process_queue):
                await asyncio.sleep(0.05)
                continue
            offset = min(process_queue.waiting)
            record = process_queue.waiting[offset]
            process_queue.busy = True
            self._listener.begins(self._name, queue, offset, process_queue.lock)
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.uniform(0.0, 0.1))
            self._deliver(process_queue, record)
            self._listener.ends(self._name, queue)
            process_queue.busy = False
            if self._listener.fails(record) and offset not in failed and not process_queue.dropped:
                failed[offset] = None  # the queue waits, and the message comes again
                await asyncio.sleep(0.1)
            elif not process_queue.dropped:
                self._finish(process_queue, offset)

    # --- offsets

    async def _persist_regularly(self) -> None:
        while not self._closing:
            await asyncio.sleep(PERSIST_SECONDS)
            for process_queue in list(self._process_queues.values()):
                with suppress(ClientError):
                    self._wire.commit(
                        self._routes.leader(process_queue.queue),
                        process_queue.queue,
                        process_queue.done,
                    )

    async def _begin_at(self, process_queue: ProcessQueue, offset: int) -> None:
        """Drops the queue. It starts again when its new offset is known."""
        queue = process_queue.queue
        process_queue.dropped = True
        await asyncio.sleep(REBASE_SECONDS)
        await self._idle(process_queue)
        if self._process_queues.get(queue) is not process_queue:
            return
        process_queue.done = offset
        self._release(process_queue)
        self._client_host.note(f"{queue.topic}/{queue.queue_id} goes on at {offset}")
        self._wake()

    def _reset(self, _: Connection, request: Frame) -> None:
        """Handles request 220: an operator has reset the offset."""
        for queue, offset in reset_offsets(request.body).items():
            process_queue = self._process_queues.get(queue)
            if process_queue is not None and not process_queue.dropped:
                self._client_host.coverage_mark("group reset while it consumed")
                self._run(self._begin_at(process_queue, offset))

    async def _leave(self) -> None:
        for process_queue in list(self._process_queues.values()):
            await self._give_up(process_queue)
        for topic in self._client.topics:
            route = self._routes.cached(topic)
            for address in () if route is None else route.brokers.get(BROKER, {}).values():
                with suppress(CallError):
                    await self._wire.unregister(address)
        for task in self._tasks:
            task.cancel()
        await self._connections.close()
        self._client_host.note("has left its group")
