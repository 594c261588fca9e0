"""Faults of a whole cluster: those of its nodes, and of clients, NameServers, clocks and disks."""

from __future__ import annotations

from collections.abc import Callable

from simulator.faults.broker_sequences import BROKER_SEQUENCE_KINDS
from simulator.faults.derived_file_damage import CHECKPOINTS, KEYS, QUEUES, WAYS
from simulator.faults.injector import KINDS, FaultInjector
from simulator.faults.membership import MEMBER_KINDS
from simulator.faults.raft_sequences import SEQUENCE_KINDS

NAME_SERVER = "ns"
CLIENT_PAUSE_SECONDS_MAX = 4.0
CLOCK_JUMPS_MS = (-86_400_000, -5_000, -50, 50, 5_000, 86_400_000)
CLOCK_RATES = (0.97, 0.999, 1.001, 1.03)


class BrokerFaultInjector(FaultInjector):
    """See the module."""

    # --- clients

    def client_crash(self) -> None:
        client = self._rng.choice(self._cluster.target_clients)
        self._do("crash-client", client)
        self._later(2.0, "start-client", client)

    def client_pause(self) -> None:
        client = self._rng.choice(self._cluster.target_clients)
        self._do("pause-client", client)
        self._later(CLIENT_PAUSE_SECONDS_MAX, "resume-client", client)

    def client_cut_off(self) -> None:
        """From one broker, or from all."""
        client = self._rng.choice(self._cluster.target_clients)
        hosts = self._cluster.hosts
        for host in hosts if self._rng.random() < 0.3 else [self._host()]:
            self._do("cut-client", client, host.name)
        self._later(5.0, "heal")

    def name_server_crash(self) -> None:
        self._do("crash-client", NAME_SERVER)
        self._later(3.0, "start-client", NAME_SERVER)

    # --- links that come and go

    def flapping(self) -> None:
        one, other = self._two()
        for _ in range(self._rng.randint(2, 6)):
            self._later(3.0, "cut", one.name, other.name, self._rng.choice(("noticed", "silent")))
            self._later(3.0, "heal")

    # --- clocks

    def clock_jump(self) -> None:
        self._do("set-clock", self._host().name, self._rng.choice(CLOCK_JUMPS_MS))

    def clock_drift(self) -> None:
        self._do("drift-clock", self._host().name, self._rng.choice(CLOCK_RATES))

    # --- disks

    def sync_error(self) -> None:
        self._do("fail-operation", self._host().name, "datasync", self._rng.randint(1, 10))

    def read_error(self) -> None:
        self._do("fail-operation", self._host().name, "pread", self._rng.randint(1, 20))

    def flip_bit(self) -> None:
        self._do("flip-bit", self._host().name, self._share(), self._rng.randrange(8))

    def lose_file(self) -> None:
        self._do("lose-file", self._host().name, self._share())

    def cut_file(self) -> None:
        self._do("cut-file", self._host().name, self._share())

    def swap_files(self) -> None:
        self._do("swap-files", self._host().name, self._share(), self._share())

    def misdirect_write(self) -> None:
        self._do("misdirect-write", self._host().name, self._share(), self._share())

    def lose_sector(self) -> None:
        self._do("lose-sector", self._host().name, self._share())

    def damage_checkpoint(self) -> None:
        self._damage_file(CHECKPOINTS)

    def damage_queue(self) -> None:
        self._damage_file(QUEUES)

    def damage_key_index(self) -> None:
        self._damage_file(KEYS)

    def damage_entry_index(self) -> None:
        self._damage_file("index")

    def _damage_file(self, part: str) -> None:
        self._do("damage-file", self._host().name, part, self._rng.choice(WAYS), self._share())

    def _share(self) -> float:
        """How far into the log; few digits, so that a schedule can say it."""
        return round(self._rng.random(), 3)

    def _strike_with(self, kind: str) -> None:
        BROKER_FAULT_KINDS[kind](self)


BROKER_ONLY_KINDS: dict[str, Callable[[BrokerFaultInjector], None]] = {
    "client crash": BrokerFaultInjector.client_crash,
    "client pause": BrokerFaultInjector.client_pause,
    "client cut off": BrokerFaultInjector.client_cut_off,
    "NameServer crash": BrokerFaultInjector.name_server_crash,
    "flapping link": BrokerFaultInjector.flapping,
    "clock jump": BrokerFaultInjector.clock_jump,
    "clock drift": BrokerFaultInjector.clock_drift,
    "sync error": BrokerFaultInjector.sync_error,
    "read error": BrokerFaultInjector.read_error,
}
DAMAGE_KINDS: dict[str, Callable[[BrokerFaultInjector], None]] = {
    "bit flip": BrokerFaultInjector.flip_bit,
    "file lost": BrokerFaultInjector.lose_file,
    "file cut short": BrokerFaultInjector.cut_file,
    "files swapped": BrokerFaultInjector.swap_files,
    "misdirected write": BrokerFaultInjector.misdirect_write,
    "unreadable sector": BrokerFaultInjector.lose_sector,
    "checkpoint damaged": BrokerFaultInjector.damage_checkpoint,
    "ConsumeQueue damaged": BrokerFaultInjector.damage_queue,
    "key index damaged": BrokerFaultInjector.damage_key_index,
    "entry index damaged": BrokerFaultInjector.damage_entry_index,
}
"""Damage at rest, within the bounds of ``faults/disk_damage.py``; a run has it only where it is
asked for.
"""

BROKER_FAULT_KINDS: dict[str, Callable[[BrokerFaultInjector], None]] = {
    **KINDS,
    **BROKER_ONLY_KINDS,
    **DAMAGE_KINDS,
    **MEMBER_KINDS,
    **SEQUENCE_KINDS,
    **BROKER_SEQUENCE_KINDS,
}
"""Every kind, by the name that the summary of a run tells."""

BrokerFaultInjector.drawn_kinds = (*KINDS, *BROKER_ONLY_KINDS, *BROKER_SEQUENCE_KINDS)
