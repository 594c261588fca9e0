"""Sends requests: a quick first try, then retries."""

from __future__ import annotations

import asyncio
from functools import partial

from broker.client.config import ProducerConfig
from broker.client.errors import (
    AccessDeniedError,
    ClientError,
    ClosedError,
    DeadlineError,
    DoubtfulRefusalError,
    Failure,
    NoLeaderError,
    TopicNotFoundError,
    perhaps_stored,
)
from broker.client.message import MessageQueue, SendResult, SendStatus
from broker.client.producer.broker_group_line import LOOK_SECONDS, BrokerGroupLine, Waiting
from broker.client.producer.latency_faults import FAILED_LATENCY_MS, LatencyFaults
from broker.client.producer.pending_send import PendingSend
from broker.client.producer.queue_selection import QueueSelector, Target
from broker.client.producer.send_outcome_query import (
    APPLIED_SECONDS_MAX,
    find_stored,
    until_applied,
)
from broker.client.producer.silent_leaders import SilentLeaders
from broker.client.route.route_cache import Routes
from broker.remoting.client import RemotingClient
from broker.remoting.pending_requests import Done
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from dledger.settle import settle


class SendDispatcher:
    """Sends each request until it is acknowledged or has failed.

    A first try that succeeds needs no task. After a failure a task looks the route up again, waits
    as ``client/route/route_cache.py`` says, and sends the same bytes. It ends once they are
    acknowledged or refused for good, or at the deadline. If an earlier try may have been carried
    out, the task asks before it sends again (``client/producer/send_outcome_query.py``).
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        remoting: RemotingClient,
        routes: Routes,
        queue_selector: QueueSelector,
        config: ProducerConfig,
        faults: LatencyFaults | None,
    ) -> None:
        self._loop = loop
        self._remoting = remoting
        self._routes = routes
        self._queue_selector = queue_selector
        self._config = config
        self._faults = faults
        self._silent_leaders = SilentLeaders(loop, remoting, routes)
        self._lines: dict[str, BrokerGroupLine] = {}
        self._tasks: dict[asyncio.Task[None], PendingSend] = {}
        self._closed = False

    def begin(self, delivery: PendingSend) -> None:
        """Sends a request, at once if the leader is known."""
        if self._closed:
            delivery.fail(ClosedError("the producer is closed"))
            return
        target = self._queue_selector.at_once(delivery.topic, delivery.pinned)
        if target is None:
            self._try_on(delivery, None)
            return
        self._send_first(delivery, target)

    def _send_first(self, delivery: PendingSend, target: Target) -> None:
        """Sends it, or lets it wait in line."""
        line = self._line(target.queue.broker)
        if line.waiting or line.is_full:
            line.waiting.append(Waiting(delivery, target.queue))
            if line.timer is None:
                line.timer = self._loop.call_later(LOOK_SECONDS, self._look, line)
            return
        line.in_flight += 1
        self._send(delivery, target, partial(self._answered, delivery, target.queue, line))

    def _line(self, broker: str) -> BrokerGroupLine:
        line = self._lines.get(broker)
        if line is None:
            line = self._lines[broker] = BrokerGroupLine()
        return line

    def _advance(self, line: BrokerGroupLine) -> None:
        """Sends who waits, as far as there is room. Called when the group has answered: what is
        sent to one that has just failed would fail, too, and might count as stored."""
        while line.waiting and not line.is_full and not self._closed:
            delivery, queue = line.waiting[0]
            if delivery.future.done():  # its caller has cancelled it
                line.waiting.popleft()
                continue
            target = self._queue_selector.at_once(delivery.topic, queue)
            if target is None:
                return  # without a leader; the next look sees to it
            line.waiting.popleft()
            line.in_flight += 1
            self._send(delivery, target, partial(self._answered, delivery, queue, line))

    def _look(self, line: BrokerGroupLine) -> None:
        line.timer = None
        for each in line.expired(self._loop.time()):
            each.fail(self._deadline_error(each, None))
        self._pass_on(line)
        self._advance(line)
        if line.waiting and line.timer is None:
            line.timer = self._loop.call_later(LOOK_SECONDS, self._look, line)

    def _pass_on(self, line: BrokerGroupLine) -> None:
        """Where the group has no leader, another one takes who waits. Without another they stay,
        and their routes are looked up."""
        topics = {each.delivery.topic: each.queue.broker for each in line.waiting}
        leaderless = {
            topic for topic, broker in topics.items() if self._lacks_leader(topic, broker)
        }
        if not leaderless:
            return
        elsewhere: list[tuple[PendingSend, Target]] = []
        stay: list[Waiting] = []
        for each in line.leave():
            delivery = each.delivery
            target = None
            if delivery.topic in leaderless and delivery.pinned is None:
                target = self._queue_selector.at_once(delivery.topic, None)
            if target is None:
                stay.append(each)
            else:
                elsewhere.append((delivery, target))
        line.waiting.extend(stay)
        for topic in leaderless.intersection(each.delivery.topic for each in stay):
            self._routes.doubt(topic, topics[topic])
        for delivery, target in elsewhere:
            self._send_first(delivery, target)

    def _lacks_leader(self, topic: str, broker: str) -> bool:
        route = self._routes.cached(topic)
        return route is not None and route.leader(broker) is None

    async def close(self) -> None:
        """Ends the retries with :class:`ClosedError`."""
        self._closed = True
        self._silent_leaders.close()
        for line in self._lines.values():
            if line.timer is not None:
                line.timer.cancel()
            for each in line.leave():
                each.delivery.fail(ClosedError("the producer was closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _send(self, delivery: PendingSend, target: Target, done: Done) -> None:
        queue, address = target
        delivery.tried = delivery.asked = target
        delivery.tries += 1
        if address not in self._silent_leaders.asked:
            self._silent_leaders.sent(address, delivery.topic, queue.broker)
        if self._faults is not None:
            done = partial(self._watch, queue.broker, self._loop.time(), done)
        self._remoting.call_template(
            address,
            delivery.template,
            (*delivery.values, queue.queue_id),
            delivery.body,
            timeout=self._config.request_seconds,
            done=done,
        )

    def _answered(
        self,
        delivery: PendingSend,
        queue: MessageQueue,
        line: BrokerGroupLine,
        answer: Frame | None,
        failure: Failure | None,
    ) -> None:
        line.in_flight -= 1
        if answer is not None:
            try:
                result = delivery.acknowledgement(answer, queue)
            except ClientError as error:
                failure = error
            else:
                delivery.succeed(result)
                if delivery.forwarded:
                    self._routes.doubt(delivery.topic, queue.broker)
                if line.waiting:
                    self._advance(line)
                return
            if line.waiting and not failure.retriable:  # the group works, and refuses this one
                self._advance(line)
        self._try_on(delivery, failure)

    def _succeed(self, delivery: PendingSend, result: SendResult) -> None:
        delivery.succeed(result)
        if delivery.forwarded:
            self._routes.doubt(delivery.topic, result.queue.broker)

    def _try_on(self, delivery: PendingSend, failure: Failure | None) -> None:
        if self._closed:
            delivery.fail(ClosedError("the producer was closed"))
            return
        task = self._loop.create_task(self._deliver(delivery, failure))
        self._tasks[task] = delivery
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        delivery = self._tasks.pop(task)
        if task.cancelled():
            delivery.fail(ClosedError("the producer was closed"))
        elif (fault := task.exception()) is not None:
            delivery.fail(fault)

    async def _deliver(self, delivery: PendingSend, failure: Failure | None) -> None:
        try:
            async with asyncio.timeout_at(delivery.deadline):
                while not delivery.future.done():
                    if failure is not None:
                        if self._is_final(delivery, failure):
                            delivery.fail(failure)
                            return
                        await self._recover(delivery, failure)
                    try:
                        self._succeed(delivery, await self._try(delivery))
                    except (CallError, ClientError) as error:
                        failure = error
        except TimeoutError:
            delivery.fail(self._deadline_error(delivery, failure))

    def _deadline_error(self, delivery: PendingSend, failure: Failure | None) -> DeadlineError:
        last = self._missing_leader(delivery.topic) or failure
        seconds = self._config.deadline_seconds
        return DeadlineError(f"a message to {delivery.topic}", seconds, last)

    def _missing_leader(self, topic: str) -> NoLeaderError | None:
        """The error if the known route has no leader. Then no try is made."""
        route = self._routes.cached(topic)
        if route is None or route.is_led or not route.write_queues:
            return None
        return NoLeaderError(route.write_queues[0].broker)

    async def _try(self, delivery: PendingSend) -> SendResult:
        avoid = () if delivery.queue is None else (delivery.queue.broker,)
        target = await self._queue_selector.search(delivery.topic, delivery.pinned, avoid)
        line = self._line(target.queue.broker)
        async with line.turn():
            result = await self._try_at(self._present(target), delivery)
        if line.waiting:
            self._advance(line)
        return result

    def _present(self, target: Target) -> Target:
        """The target after the wait for a turn: there may be another leader by now."""
        queue = target.queue
        route = self._routes.cached(queue.topic)
        if route is None:
            return target
        leader = route.leader(queue.broker)
        if leader is None:
            raise NoLeaderError(queue.broker)
        return Target(queue, leader)

    async def _try_at(self, target: Target, delivery: PendingSend) -> SendResult:
        delivery.asked = target
        found = await self._find_earlier_try(delivery, target)
        if found is not None:
            return found
        answered: asyncio.Future[Frame] = self._loop.create_future()
        self._send(delivery, target, partial(settle, answered))
        result = delivery.acknowledgement(await answered, target.queue)
        if self._routes.cached(delivery.topic) is None:
            self._queue_selector.forget_promise(delivery.topic)
        return result

    async def _find_earlier_try(self, delivery: PendingSend, target: Target) -> SendResult | None:
        """The result of an earlier try, if one was carried out; asks only if one may have been."""
        broker = target.queue.broker
        if broker not in delivery.doubtful_at:
            return None
        if delivery.doubtful_at[broker] == target.address:
            seconds = delivery.applied_seconds
            delivery.applied_seconds = min(2 * seconds, APPLIED_SECONDS_MAX)
            await until_applied(
                self._remoting,
                target.address,
                delivery.topic,
                self._config.group,
                seconds=seconds,
            )
        try:
            found = await find_stored(
                self._remoting,
                target.address,
                delivery.topic,
                delivery.first_key,
                record_sizes=delivery.record_sizes(),
                seconds=self._config.request_seconds,
            )
        except AccessDeniedError:
            return None  # the account may send but not read; the leader recognises retries itself
        if found is None:
            return None
        return SendResult(
            SendStatus.OK,
            target.queue._replace(queue_id=found.queue_id),
            found.queue_offset,
            delivery.count or 1,
            ",".join(found.message_ids),
            delivery.first_key,
        )

    async def _recover(self, delivery: PendingSend, failure: Failure) -> None:
        delivery.note(failure)
        if self._config.idempotent and perhaps_stored(failure):
            delivery.pinned = delivery.queue
        self._queue_selector.forget_promise(delivery.topic)
        if self._has_moved(delivery):
            return
        if isinstance(failure, NoLeaderError):
            culprit = failure.broker
        else:
            culprit = delivery.topic if delivery.queue is None else delivery.queue.broker
        await self._routes.recover(delivery.topic, culprit, until_led=True)

    def _has_moved(self, delivery: PendingSend) -> bool:
        """Whether the route names another leader already than the one that failed."""
        route, asked = self._routes.cached(delivery.topic), delivery.asked
        if route is None or asked is None:
            return False
        return route.leader(asked.queue.broker) not in {None, asked.address}

    def _is_final(self, delivery: PendingSend, failure: Failure) -> bool:
        if isinstance(failure, TopicNotFoundError):
            patience = self._config.deadline_seconds - self._config.missing_topic_seconds
            return self._loop.time() >= delivery.deadline - patience
        if isinstance(failure, DoubtfulRefusalError):
            return delivery.tries >= self._config.doubtful_tries
        return not failure.retriable

    def _watch(
        self,
        broker: str,
        sent: float,
        done: Done,
        answer: Frame | None,
        failure: CallError | None,
    ) -> None:
        now = self._loop.time()
        latency_ms = FAILED_LATENCY_MS if failure is not None else int((now - sent) * 1000)
        if self._faults is not None:
            self._faults.record(broker, latency_ms, int(now * 1000))
        done(answer, failure)
