"""Single faults of brokers: clients, NameServers, clocks, flapping links, damaged disks."""

from __future__ import annotations

from random import Random

from simulator.faults.derived_file_damage import CHECKPOINTS, KEYS, QUEUES, WAYS
from simulator.faults.injector import Fault, FaultInjector, at_a_host

NAME_SERVER = "ns"
CLIENT_PAUSE_SECONDS_MAX = 4.0
CLOCK_JUMPS_MS = (-86_400_000, -5_000, -50, 50, 5_000, 86_400_000)
CLOCK_RATES = (0.97, 0.999, 1.001, 1.03)


# --- clients


def _client_crash(injector: FaultInjector) -> None:
    client = injector.rng.choice(injector.cluster.target_clients)
    injector.do("crash-client", client)
    injector.later(2.0, "start-client", client)


def _client_pause(injector: FaultInjector) -> None:
    client = injector.rng.choice(injector.cluster.target_clients)
    injector.do("pause-client", client)
    injector.later(CLIENT_PAUSE_SECONDS_MAX, "resume-client", client)


def _client_cut_off(injector: FaultInjector) -> None:
    """Cuts a client off from one broker, or from all."""
    client = injector.rng.choice(injector.cluster.target_clients)
    hosts = injector.cluster.hosts
    for host in hosts if injector.rng.random() < 0.3 else [injector.host()]:
        injector.do("cut-client", client, host.name)
    injector.later(5.0, "heal")


def _name_server_crash(injector: FaultInjector) -> None:
    injector.do("crash-client", NAME_SERVER)
    injector.later(3.0, "start-client", NAME_SERVER)


# --- links that come and go


def _flapping(injector: FaultInjector) -> None:
    one, other = injector.two()
    for _ in range(injector.rng.randint(2, 6)):
        injector.later(3.0, "cut", one.name, other.name, injector.rng.choice(("noticed", "silent")))
        injector.later(3.0, "heal")


def _share(rng: Random) -> float:
    """A place in the log, as a share with few digits for the schedule."""
    return round(rng.random(), 3)


def _damage_to(part: str) -> Fault:
    """Damage to derived files of that part."""
    return at_a_host("damage-file", lambda _rng: part, lambda rng: rng.choice(WAYS), _share)


BROKER_ONLY_KINDS: dict[str, Fault] = {
    "client crash": Fault(_client_crash),
    "client pause": Fault(_client_pause),
    "client cut off": Fault(_client_cut_off),
    "NameServer crash": Fault(_name_server_crash),
    "flapping link": Fault(_flapping),
    "clock jump": at_a_host("set-clock", lambda rng: rng.choice(CLOCK_JUMPS_MS)),
    "clock drift": at_a_host("drift-clock", lambda rng: rng.choice(CLOCK_RATES)),
    "sync error": at_a_host("fail-operation", lambda _: "datasync", lambda rng: rng.randint(1, 10)),
    "read error": at_a_host("fail-operation", lambda _: "pread", lambda rng: rng.randint(1, 20)),
}
DAMAGE_KINDS: dict[str, Fault] = {
    "bit flip": at_a_host("flip-bit", _share, lambda rng: rng.randrange(8)),
    "file lost": at_a_host("lose-file", _share),
    "file cut short": at_a_host("cut-file", _share),
    "files swapped": at_a_host("swap-files", _share, _share),
    "misdirected write": at_a_host("misdirect-write", _share, _share),
    "unreadable sector": at_a_host("lose-sector", _share),
    "checkpoint damaged": _damage_to(CHECKPOINTS),
    "ConsumeQueue damaged": _damage_to(QUEUES),
    "key index damaged": _damage_to(KEYS),
    "entry index damaged": _damage_to("index"),
}
"""Damage at rest, within the bounds of ``faults/disk_damage.py``; a run has it only on request.
"""
