"""Attacks running servers in different ways, and reports what a steady producer saw."""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson

from broker.certificates.security_directory import init_directory
from broker.cli.local_cluster.managed_processes import execute
from broker.cli.terminal.options import DEFAULT_CLUSTER
from broker.config.security_config import SecurityFiles
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.security.credentials import NO_SECURITY, ClientSecurity, read_profile
from dledger.wire.endpoint import Endpoint
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.tls_contexts import TlsContexts, TlsFiles
from tests.broker.single_broker import send_ext
from tests.cluster.running_cluster import RunningCluster, admin_profile, start_cluster
from tests.fuzz.floods import BIG, FLOODS, ORDERS, Address, Ports
from tests.fuzz.inputs import frames, http_requests, peer_frames, say_bytes, say_requests
from tests.fuzz.requests import ADMIN_POWER, Requests

WITNESS_TOPIC = "witness"
GAP_SECONDS = 0.5
"""The longest time for which a well-behaved producer may wait; what its own process did not run is
taken off."""

RESIDENT_BYTES_MAX = 1536 << 20
"""Of a broker or a NameServer."""

LOG_BYTES_MAX = 64 << 20
DEFECTS = ("Traceback", " CRITICAL ", "InvariantError")
FLOOD_SECONDS = 4.0
PAUSE_SECONDS = 0.5
NICENESS = 15
STOCK = 256
STOCK_BODY = b"x" * (64 << 10)
FILES = 16_384

Attack = Callable[[float], Awaitable[int]]
"""Runs for a number of seconds. Returns how many inputs it sent."""


@dataclass(slots=True)
class PortResult:
    """The result of all attacks."""

    inputs: int = 0
    findings: list[str] = field(default_factory=list)


class Observer:
    """Watches the attacked processes: whether they run, what they log, what memory they use."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._pids = {node: cluster.pid(node) for node in cluster.nodes}
        self._pids["namesrv"] = cluster.namesrv_pid
        self._logs = {
            **{node: cluster.data(node) / "log/node.log" for node in cluster.nodes},
            "namesrv": cluster.directory / "namesrv/log/namesrv.log",
        }
        self._read = dict.fromkeys(self._logs, 0)

    def resident_mib(self) -> int:
        """The peak memory of the largest process since the last call; 0 if it has ended."""
        peaks = [0]
        for pid in self._pids.values():
            try:
                text = Path(f"/proc/{pid}/status").read_text()
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:
                continue
            peaks += [int(line.split()[1]) for line in text.splitlines() if "VmHWM" in line]
        return max(peaks) >> 10

    def defects(self) -> Iterator[str]:
        """Since the last call."""
        for name, pid in self._pids.items():
            if not Path(f"/proc/{pid}/fd").exists() or not os.listdir(f"/proc/{pid}/fd"):
                yield f"{name} has ended"
        for name, path in self._logs.items():
            text = path.read_text(errors="replace")
            new, self._read[name] = text[self._read[name] :], len(text)
            for line in new.splitlines():
                if any(sign in line for sign in DEFECTS):
                    yield f"{name} logged: {line[:300]} ... {line[-700:]}"
            if path.stat().st_size > LOG_BYTES_MAX:
                yield f"the log of {name} has {path.stat().st_size} bytes"


class WitnessProcess:
    """See ``witness.py``."""

    def __init__(self, address: str, profile: Path | None) -> None:
        environment = {**os.environ}
        environment.pop("DLEDGER_PROFILE", None)
        if profile is not None:
            environment["DLEDGER_PROFILE"] = str(profile)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.witness", address, WITNESS_TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def report(self) -> dict[str, Any]:
        """What the producer saw since the last report."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"report\n")
        self._process.stdin.flush()
        found: dict[str, Any] = orjson.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextmanager
def servers(directory: Path, *, secured: bool) -> Iterator[RunningCluster]:
    """A group of one and a NameServer, while the block runs."""
    profile = admin_profile(directory)
    before = os.environ.get("DLEDGER_PROFILE")
    if secured:
        os.environ["DLEDGER_PROFILE"] = str(profile)
    cluster = start_cluster(directory, secured, nodes=1, secured_peers="enforcing", starter=execute)
    try:
        yield cluster
    finally:
        cluster.stop()
        if secured:
            os.environ.pop("DLEDGER_PROFILE", None)
        if before is not None:
            os.environ["DLEDGER_PROFILE"] = before


async def prepare(address: str, security: ClientSecurity) -> None:
    """Topics, and messages to pull. Raises what a client raises."""
    client = RemotingClient(asyncio.get_running_loop(), security=security)
    for topic in (ORDERS, BIG, WITNESS_TOPIC):
        settings = {"topic": topic, "defaultTopic": "TBW102", "perm": "6"}
        settings |= {"readQueueNums": "4", "writeQueueNums": "4", "topicFilterType": "SINGLE_TAG"}
        await client.invoke(address, RequestCode.UPDATE_AND_CREATE_TOPIC, settings)
    for _ in range(STOCK):
        ext = send_ext(BIG, 0)
        await client.invoke(address, RequestCode.SEND_MESSAGE_V2, ext, (STOCK_BODY,), timeout=20)
    await client.close()


def attacks(
    ports: Ports,
    requests: Requests,
    rng: Random,
    security: ClientSecurity,
    peer_tls: ssl.SSLContext | None,
) -> Mapping[str, Attack]:
    """All of them. The first ones say much, the others are :data:`FLOODS`. With ``peer_tls`` the
    attacker has the certificate of a node, and the port of peers is attacked behind TLS, too."""
    remoting, namesrv = (f"{host}:{port}" for host, port in (ports.remoting, ports.namesrv))

    def flood(name: str) -> Attack:
        return lambda seconds: FLOODS[name](ports, seconds)

    return {
        "requests": lambda s: say_requests(remoting, requests, s, security),
        "requests to the NameServer": lambda s: say_requests(namesrv, requests, s, security),
        "frames": lambda s: say_bytes(*ports.remoting, lambda: frames(requests), s),
        "frames to the NameServer": lambda s: say_bytes(
            *ports.namesrv, lambda: frames(requests), s
        ),
        "HTTP": lambda s: say_bytes(*ports.http, lambda: http_requests(rng), s),
        "peers": lambda s: say_bytes(*ports.peer, lambda: peer_frames(rng), s),
        **(
            {}
            if peer_tls is None
            else {
                "peers behind TLS": lambda s: say_bytes(
                    *ports.peer, lambda: peer_frames(rng), s, tls=peer_tls
                )
            }
        ),
        **{name: flood(name) for name in FLOODS},
    }


def attack_ports(
    directory: Path,
    *,
    seconds: float,
    seed: int,
    secured: bool,
    only: str,
    note: Callable[[str], None],
) -> PortResult:
    """Starts servers in ``directory`` and attacks them for so long in all. With ``secured`` access
    control is on, and the attacker has an account that may use topics and is not an admin."""
    files = min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with servers(directory, secured=secured) as cluster:
        profile = admin_profile(directory) if secured else None
        security = NO_SECURITY if profile is None else read_profile(str(profile))
        (node,) = cluster.nodes
        own = cluster.config(node).own
        asyncio.run(prepare(str(own.address), security))
        if secured:
            security = read_profile(str(_account(cluster)))
        witness = WitnessProcess(str(own.address), profile)
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        ports = Ports(
            Address(*own.address),
            Address(*own.http),
            Address(*own.peer),
            Address(*Endpoint.parse(cluster.namesrv)),
        )
        rng = Random(seed)
        requests = Requests(rng, codes_left_out=frozenset() if secured else ADMIN_POWER)
        peer_tls = _stolen_node(directory / "security") if secured else None
        found = attacks(ports, requests, rng, security, peer_tls)
        chosen = {name: attack for name, attack in found.items() if only in name}
        try:
            result = asyncio.run(_attack(chosen, seconds, witness, Observer(cluster), note))
        finally:
            witness.end()
        note(f"fields were learned for {requests.codes_known} codes")
        return result


async def _attack(
    chosen: Mapping[str, Attack],
    seconds: float,
    witness: WitnessProcess,
    observer: Observer,
    note: Callable[[str], None],
) -> PortResult:
    result = PortResult()
    await asyncio.sleep(2.0)
    witness.report()
    await asyncio.sleep(2.0)
    _tell(note, "nothing", 0, witness.report(), observer)
    floods = sum(1 for name in chosen if name in FLOODS)
    rest = seconds - floods * (FLOOD_SECONDS + PAUSE_SECONDS)
    each = max(FLOOD_SECONDS, rest / max(1, len(chosen) - floods))
    for name, attack in chosen.items():
        inputs = await attack(FLOOD_SECONDS if name in FLOODS else each)
        await asyncio.sleep(PAUSE_SECONDS)
        seen = witness.report()
        result.inputs += inputs
        result.findings += _findings(name, seen, _tell(note, name, inputs, seen, observer))
        result.findings += [f"{name}: {what}" for what in observer.defects()]
    return result


def _tell(
    note: Callable[[str], None], name: str, inputs: int, seen: dict[str, Any], observer: Observer
) -> int:
    resident = observer.resident_mib()
    note(
        f"{name:28} {inputs:9,} inputs, longest gap {seen['gap']:.3f} s "
        f"(the witness stood still {seen['starved']:.3f} s), {seen['acknowledged']} acknowledged, "
        f"{seen['refused']} refused, {resident} MiB"
    )
    return resident


def _findings(name: str, seen: dict[str, Any], resident_mib: int) -> list[str]:
    found = []
    if seen["gap"] - seen["starved"] > GAP_SECONDS:
        found.append(f"{name}: a well-behaved producer waited {seen['gap']:.3f} s")
    if seen["refused"]:
        found.append(f"{name}: {seen['refused']} messages of a well-behaved producer were refused")
    if resident_mib << 20 > RESIDENT_BYTES_MAX:
        found.append(f"{name}: a process had {resident_mib} MiB")
    return found


def _stolen_node(made: Path) -> ssl.SSLContext:
    """Shows a certificate of the node ``n1``, which is no member."""
    files = SecurityFiles(str(made))
    stolen = PeerIdentity(DEFAULT_CLUSTER, "broker-a", "n1")
    init_directory(files, DEFAULT_CLUSTER, {stolen: ["127.0.0.1"]}, days=1, renew=False)
    name = "broker-a/n1"
    own = TlsFiles(files.ca, files.certificate(name), files.key(name))
    return TlsContexts(own).client_context()


def _account(cluster: RunningCluster) -> Path:
    """The profile of an account that may use topics and groups, and is not an admin."""
    path = cluster.directory / "fuzzer.toml"
    cluster.dledger(
        *("security", "user", "add", "fuzzer-1", "--default-topic", "ANY"),
        *("--default-group", "SUB", "--out", str(path)),
    )
    return path
