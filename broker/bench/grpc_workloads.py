"""gRPC compared with remoting: the workloads of ``dledger bench grpc``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import NamedTuple

import orjson

from broker.bench.grpc_load import BATCH, ECHO, RECEIVE, SEND, GrpcJob
from broker.bench.jobs import FillJob, LoadShape, ProduceJob
from broker.bench.results import Round
from broker.bench.worker_client import LoadClient, LoadError

_PROGRAM = (sys.executable, "-m", "broker.bench.grpc_load")
_RECEIVERS = 4
FILLED = 64 * 1024
"""The number of messages to receive; a round ends when they are gone."""


class GrpcPlace(NamedTuple):
    """The leader's gRPC address, and the pids of all servers."""

    target: str
    pids: tuple[int, ...]


def measure_grpc(
    client: LoadClient,
    place: GrpcPlace,
    send: ProduceJob,
    new_topic: Callable[[], str],
    tell: Callable[[str], None],
) -> dict[str, list[Round]]:
    """Measures single sends by remoting (``send``) and by gRPC, with as many in progress; receive
    requests by gRPC with acknowledgements; and calls of a server that does nothing.

    Raises :class:`~broker.bench.worker_client.LoadError`.
    """
    in_flight = send.shape.in_flight
    remoting = f"remoting: send, {in_flight} in flight"
    tell(remoting)
    found = {remoting: client.measure(send)}
    job = GrpcJob(
        SEND,
        place.target,
        send.topics[0],
        send.size,
        in_flight,
        send.warm_up_seconds,
        send.seconds,
        send.rounds,
        place.pids,
    )
    name = f"gRPC: send, {in_flight} in flight"
    tell(name)
    found[name] = _rounds(job)
    topic = new_topic()
    client.fill(FillJob((topic,), send.size, FILLED, LoadShape(128, 4)))
    name = f"gRPC: receive and ack, {BATCH} at a time"
    tell(name)
    receive = replace(
        job, operation=RECEIVE, topic=topic, in_flight=_RECEIVERS, warm_up_seconds=0.5
    )
    found[name] = _rounds(receive)
    name = f"bare grpcio: the same calls, {in_flight} in flight"
    tell(name)
    with _echo() as (port, pid):
        bare = replace(job, operation=ECHO, target=f"127.0.0.1:{port}", pids=(pid,))
        found[name] = _rounds(bare)
    return found


def _rounds(job: GrpcJob) -> list[Round]:
    text = orjson.dumps(asdict(job)).decode()
    done = subprocess.run([*_PROGRAM, "load", text], stdout=subprocess.PIPE, check=False)
    try:
        told = orjson.loads(done.stdout)
    except ValueError:
        raise LoadError("the process that makes the load has ended; see above") from None
    if isinstance(told, dict):
        raise LoadError(f"the load failed: {told['error']}")
    return [Round(**fields) for fields in told]


@contextmanager
def _echo() -> Iterator[tuple[int, int]]:
    """The port and the pid of a server that does nothing."""
    with subprocess.Popen(
        [*_PROGRAM, ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - as asked
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()
