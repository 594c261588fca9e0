"""Single faults of brokers: clients, NameServers, clocks, flapping links, damaged disks."""

from __future__ import annotations

from simulator.faults.derived_file_damage import CHECKPOINTS, KEYS, QUEUES, WAYS
from simulator.faults.injector import Fault, FaultInjector

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


# --- clocks


def _clock_jump(injector: FaultInjector) -> None:
    injector.do("set-clock", injector.host().name, injector.rng.choice(CLOCK_JUMPS_MS))


def _clock_drift(injector: FaultInjector) -> None:
    injector.do("drift-clock", injector.host().name, injector.rng.choice(CLOCK_RATES))


# --- disks


def _sync_error(injector: FaultInjector) -> None:
    injector.do("fail-operation", injector.host().name, "datasync", injector.rng.randint(1, 10))


def _read_error(injector: FaultInjector) -> None:
    injector.do("fail-operation", injector.host().name, "pread", injector.rng.randint(1, 20))


def _flip_bit(injector: FaultInjector) -> None:
    injector.do("flip-bit", injector.host().name, _share(injector), injector.rng.randrange(8))


def _lose_file(injector: FaultInjector) -> None:
    injector.do("lose-file", injector.host().name, _share(injector))


def _cut_file(injector: FaultInjector) -> None:
    injector.do("cut-file", injector.host().name, _share(injector))


def _swap_files(injector: FaultInjector) -> None:
    injector.do("swap-files", injector.host().name, _share(injector), _share(injector))


def _misdirect_write(injector: FaultInjector) -> None:
    injector.do("misdirect-write", injector.host().name, _share(injector), _share(injector))


def _lose_sector(injector: FaultInjector) -> None:
    injector.do("lose-sector", injector.host().name, _share(injector))


def _damage_checkpoint(injector: FaultInjector) -> None:
    _damage_file(injector, CHECKPOINTS)


def _damage_queue(injector: FaultInjector) -> None:
    _damage_file(injector, QUEUES)


def _damage_key_index(injector: FaultInjector) -> None:
    _damage_file(injector, KEYS)


def _damage_entry_index(injector: FaultInjector) -> None:
    _damage_file(injector, "index")


def _damage_file(injector: FaultInjector, part: str) -> None:
    host = injector.host().name
    injector.do("damage-file", host, part, injector.rng.choice(WAYS), _share(injector))


def _share(injector: FaultInjector) -> float:
    """A place in the log, as a share with few digits for the schedule."""
    return round(injector.rng.random(), 3)


BROKER_ONLY_KINDS: dict[str, Fault] = {
    "client crash": Fault(_client_crash),
    "client pause": Fault(_client_pause),
    "client cut off": Fault(_client_cut_off),
    "NameServer crash": Fault(_name_server_crash),
    "flapping link": Fault(_flapping),
    "clock jump": Fault(_clock_jump),
    "clock drift": Fault(_clock_drift),
    "sync error": Fault(_sync_error),
    "read error": Fault(_read_error),
}
DAMAGE_KINDS: dict[str, Fault] = {
    "bit flip": Fault(_flip_bit),
    "file lost": Fault(_lose_file),
    "file cut short": Fault(_cut_file),
    "files swapped": Fault(_swap_files),
    "misdirected write": Fault(_misdirect_write),
    "unreadable sector": Fault(_lose_sector),
    "checkpoint damaged": Fault(_damage_checkpoint),
    "ConsumeQueue damaged": Fault(_damage_queue),
    "key index damaged": Fault(_damage_key_index),
    "entry index damaged": Fault(_damage_entry_index),
}
"""Damage at rest, within the bounds of ``faults/disk_damage.py``; a run has it only on request.
"""
