"""The share of a node's CPU time that metrics take, for each message sent and pulled.

``python -m tests.bench.metrics_cost [ROUNDS]``. A node alone in its group runs in this process, on
a real disk and a real socket. The client is another process, and its requests are made before.

The difference between a node with and one without metrics is smaller than the noise. So every other
run repeats each update of the metrics :data:`TIMES` times, and the added time is divided. The
result is an upper bound: it includes the loop of the repetition, and a node with followers has more
to do for each message.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple
from unittest.mock import patch

import uvloop

from broker.cli.commands.node import import_server, tune_interpreter
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.metrics.broker_metrics import MessageRates
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import encode_request
from dledger.histogram import Histogram
from dledger.wire.endpoint import Endpoint
from store.message.batch import Batch
from tests.broker.single_broker import batched, pull_ext, send_ext

TIMES = 30
QUEUES = 4
BODY = b"x" * 200
BATCH = 128
PULLED = 32
TOPIC = "orders"
WINDOW = 1024
"""Each queue has more messages than that once it is pulled."""


class Course(NamedTuple):
    """One kind of work: a send or a pull."""

    name: str
    in_flight: int
    """Requests at the same time."""
    each: int
    """Messages of a request."""
    requests: int
    """In each run."""
    request: Callable[[int], bytes]
    """Makes a request from its number. Numbers rise over all runs."""


def _sent(number: int) -> bytes:
    properties = f"UNIQ_KEY\1{number:032X}\2TAGS\1paid\2"
    ext = send_ext(TOPIC, number % QUEUES, properties)
    return encode_request(RequestCode.SEND_MESSAGE_V2, number, ext, len(BODY)) + BODY


def _sent_batch(number: int) -> bytes:
    first = (1 << 64) + number * BATCH
    numbers = range(first, first + BATCH)
    body = b"".join(batched(BODY, b"UNIQ_KEY\1%032X\2TAGS\1paid\2" % each) for each in numbers)
    ext = send_ext(TOPIC, number % QUEUES) | {"m": "true"}
    return encode_request(RequestCode.SEND_BATCH_MESSAGE, number, ext, len(body)) + body


def _pulled(each: int) -> Callable[[int], bytes]:
    def request(number: int) -> bytes:
        ext = pull_ext(TOPIC, number % QUEUES, number // QUEUES * each % WINDOW)
        return encode_request(RequestCode.PULL_MESSAGE, number, ext | {"maxMsgNums": str(each)})

    return request


SENT = Course("sent one by one, 256 in flight", 256, 1, 8192, _sent)
SENT_SLOWLY = Course("sent one by one, 1 in flight", 1, 1, 512, _sent)
SENT_BATCHED = Course(f"sent in batches of {BATCH}", 4, BATCH, 128, _sent_batch)
PULLED_AT_ONCE = Course(f"pulled {PULLED} at once", 4, PULLED, 2048, _pulled(PULLED))
PULLED_SINGLY = Course("pulled one by one", 4, 1, 2048, _pulled(1))
COURSES = (SENT, SENT_SLOWLY, SENT_BATCHED, PULLED_AT_ONCE, PULLED_SINGLY)
LIVES = ((SENT, PULLED_AT_ONCE), (SENT_SLOWLY, PULLED_SINGLY), (SENT_BATCHED, PULLED_AT_ONCE))
"""The kinds of work: each message is sent, and pulled."""


@contextmanager
def repeated(times: int) -> Iterator[None]:
    """While it is open, every update of the metrics by a message is repeated ``times`` times."""
    again = range(times - 1)
    observe, stored, pulled = Histogram.observe, MessageRates.stored, MessageRates.pulled

    def observe_often(
        histogram: Histogram, value: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        observe(histogram, value)
        for _ in again:
            clock()  # a latency is the difference of two readings
            clock()
            observe(histogram, value)

    def stored_often(rates: MessageRates, batch: Batch) -> None:
        stored(rates, batch)
        for _ in again:
            stored(rates, batch)

    def pulled_often(rates: MessageRates, topic: str, group: str, count: int, size: int) -> None:
        pulled(rates, topic, group, count, size)
        for _ in again:
            pulled(rates, topic, group, count, size)

    if not again:
        yield
        return
    with (
        patch.object(Histogram, "observe", observe_often),
        patch.object(MessageRates, "stored", stored_often),
        patch.object(MessageRates, "pulled", pulled_often),
    ):
        yield


def _client(address: tuple[str, int], orders: Connection) -> None:
    """Runs courses until there are no more: told the number of each, and of its first request.
    Answers twice: once all requests are made, and, told to go on, once all are answered."""
    with socket.create_connection(address) as peer, peer.makefile("rb") as answers:

        def ask(chunk: bytes, count: int) -> None:
            peer.sendall(chunk)
            for _ in range(count):
                answers.read(int.from_bytes(answers.read(4)))

        ext = {"topic": TOPIC, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        made = ext | {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        ask(encode_request(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, made), 1)
        orders.send(None)
        while (order := orders.recv()) is not None:
            course, first = COURSES[order[0]], order[1]
            step = course.in_flight
            numbers = range(first, first + course.requests, step)
            chunks = [b"".join(map(course.request, range(at, at + step))) for at in numbers]
            orders.send(None)
            orders.recv()
            for chunk in chunks:
                ask(chunk, step)
            orders.send(None)


async def _measure(config: NodeConfig, rounds: int) -> None:
    from broker.server.os_environment import serve  # noqa: PLC0415 - as a node imports it

    server = await serve(config)
    while not server.broker.context.node.serving:  # noqa: ASYNC110 - it has no event for others
        await asyncio.sleep(0.05)
    here, there = multiprocessing.Pipe()
    client = multiprocessing.get_context("spawn").Process(
        target=_client, args=((config.own.address.host, config.own.address.port), there)
    )
    client.start()
    await asyncio.to_thread(here.recv)
    print(f"{'':56} {'CPU us each':>12} {'metrics us':>12} {'%':>6}")
    found: dict[Course, tuple[float, float]] = {}
    for number, course in enumerate(COURSES):
        runs: dict[int, list[float]] = {1: [], TIMES: []}
        first = 0
        for _ in range(rounds):
            for times, costs in runs.items():  # in turns: what else the machine does hits both
                here.send((number, first))
                await asyncio.to_thread(here.recv)
                with repeated(times):
                    began = process_time()
                    here.send(None)
                    await asyncio.to_thread(here.recv)
                    costs.append(process_time() - began)
                first += course.requests
        micros = 1e6 / (course.requests * course.each)
        usual = median(runs[1]) * micros
        added = (often - once for once, often in zip(runs[1], runs[TIMES], strict=True))
        found[course] = usual, median(added) / (TIMES - 1) * micros
        _print(course.name, *found[course])
    for life in LIVES:
        usual, cost = map(sum, zip(*(found[course] for course in life), strict=True))
        _print(", ".join(course.name for course in life), usual, cost)
    here.send(None)
    client.join()
    await server.stop()


def _print(name: str, usual: float, cost: float) -> None:
    print(f"{name:56} {usual:12.3f} {cost:12.4f} {cost / usual * 100:6.2f}", flush=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    import_server()
    tune_interpreter()
    nobody, peer, address, http = (Endpoint("127.0.0.1", port) for port in _free_ports(4))
    with TemporaryDirectory(dir=Path.cwd()) as data:  # /tmp may be in memory
        config = NodeConfig(
            group="broker-a",
            node="n0",
            data=data,
            members={"n0": Member(peer, address, http)},
            namesrv=(str(nobody),),
        )
        uvloop.run(_measure(config, rounds))


if __name__ == "__main__":
    main()
