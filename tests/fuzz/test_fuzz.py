"""A short run of the fuzzer, the same each time, and proofs that it finds defects."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest

from broker.nameserver.server import NameServer
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.errors import CallError, FrameError
from broker.remoting.protocol.frame_reader import FrameReader
from tests.broker.single_broker import ADDRESS, running_broker
from tests.fuzz.decoder_process import fed_by_chance
from tests.fuzz.inputs import frames, http_requests, peer_frames
from tests.fuzz.mutation import mutated
from tests.fuzz.requests import ADMIN_POWER, Requests
from tests.fuzz.samples import SAMPLES
from tests.fuzz.targets import TARGETS, Target, target_of
from tests.linear.decoder import Decoder
from tests.support.virtual_network import NetworkedLoop

INPUTS = 150
REQUESTS = 1500
IN_FLIGHT = 50
NAMESRV = "10.0.0.1:9876"


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_refuses_nonsense_with_errors_of_its_own(name: str) -> None:
    target, rng = TARGETS[name], Random(f"1 {name}")
    for sample in target.samples:
        target.read(sample)
    for _ in range(INPUTS):
        target.read(mutated(rng, rng.choice(target.samples), target.samples))


def test_what_is_right_is_decoded() -> None:
    assert set(SAMPLES) <= set(TARGETS)


def fragile(data: bytes) -> object:
    """Has a defect that a long number of any kind does not reveal."""
    fields = data.split(b",")
    if len(fields) > 3 and not fields[2]:
        return fields[2][0]
    raise ValueError("not four fields")


def test_a_defect_of_a_decoder_is_found(tmp_path: Path) -> None:
    planted = target_of(Decoder("planted", fragile, [(b"", b"1,", b"2")]))
    home = tmp_path / "planted"
    inputs, defect, what = fed_by_chance(planted, home, 20.0, Random(1))
    assert defect is not None
    assert inputs
    assert what == "IndexError: index out of range"
    with pytest.raises(IndexError):
        planted.read(Path(defect).read_bytes())


def test_changes_are_the_same_for_the_same_seed() -> None:
    others = [b"other", b"x" * 100]
    one, same, another = (
        [mutated(rng, b"sample", others) for _ in range(50)]
        for rng in (Random(1), Random(1), Random(2))
    )
    assert one == same != another


async def ask(client: RemotingClient, address: str, requests: Requests) -> int:
    """Asks all at once, and learns from the answers. Returns how many there were."""

    async def one() -> int:
        code, ext, body = requests.next()
        try:
            answer = await client.invoke(address, code, ext, (body,), timeout=3.0)
        except CallError:
            return 0
        requests.learn(code, answer)
        return 1

    return sum([sum(await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))) for _ in range(30)])


class Tracebacks(logging.Handler):
    """What is logged with one, while the block runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")

    def __enter__(self) -> list[str]:
        logging.getLogger().addHandler(self)
        return self.found

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


async def test_a_broker_answers_whatever_it_is_asked(loop: NetworkedLoop, tmp_path: Path) -> None:
    requests = Requests(Random(1), codes_left_out=ADMIN_POWER)
    with Tracebacks() as found:
        async with running_broker(loop, tmp_path) as broker:
            answers = await ask(broker.client, ADDRESS, requests)
            assert answers > REQUESTS // 2
            assert requests.codes_known > 25
    assert found == []


async def test_a_name_server_answers_whatever_it_is_asked(loop: NetworkedLoop) -> None:
    host, port = NAMESRV.split(":")
    server = NameServer(loop, host, int(port))
    await server.start()
    client = RemotingClient(loop)
    with Tracebacks() as found:
        assert await ask(client, NAMESRV, Requests(Random(2))) > REQUESTS // 2
    await client.close()
    await server.stop()
    assert found == []


def is_whole(frame: bytes) -> bool:
    try:
        return bool(list(FrameReader().feed(frame)))
    except FrameError:
        return False


def test_streams_are_partly_right() -> None:
    requests, rng = Requests(Random(3)), Random(3)
    assert any(is_whole(frame) for frame in frames(requests))
    assert any(b"HTTP/1.1\r\n" in each for each in http_requests(rng))
    assert len(list(peer_frames(rng))) > 10


def test_targets_swallow_refusals_alone() -> None:
    def refuse(_data: bytes) -> object:
        raise ValueError("refused")

    def fail(_data: bytes) -> object:
        raise KeyError("defect")

    swallowing: Target = target_of(Decoder("refuses", refuse, []))
    swallowing.read(b"")
    with pytest.raises(KeyError):
        target_of(Decoder("fails", fail, [])).read(b"")
