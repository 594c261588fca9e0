"""Events of the disk of one simulated machine, which outlives its processes."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from simulator.engine.disk import Fault, SimulatedFileSystem
from simulator.engine.process import Process
from simulator.hosts.disks_before_damage import DisksBeforeDamage
from simulator.hosts.observed_host import Environment, ObservedHost

DIRECTORY = "/data"
"""The directory of a replica on its disk."""


@dataclass(frozen=True, slots=True)
class DiskCopy:
    """An earlier disk: its incarnation, and how far its log went then, synced or not."""

    fs: SimulatedFileSystem
    incarnation: int
    last_index: int


class DiskHost(ObservedHost, ABC):
    """A machine as far as its disk goes, and whether a process runs on it."""

    def __init__(self, name: str, environment: Environment) -> None:
        super().__init__(name, environment)
        self.fs = SimulatedFileSystem(environment.streams.stream(f"disk of {name}"))
        self.process: Process | None = None
        self.disk_slowness = 1.0
        self.damaged = False
        self.damaged_parts: dict[str, int] = {}
        """Damage to derived files (``faults/derived_file_damage.py``), each with the last boot
        before it."""
        self.damaged_checkpoints: dict[str, None] = {}
        """The paths of damaged checkpoints of this disk."""
        self.disks_before_damage = DisksBeforeDamage()
        self.has_lost_disk = False
        self.lost_index = -1
        """How far the log went on the last of them: the new disk holds less until it is
        refilled."""
        self.disk_copy: DiskCopy | None = None
        self._disk_errors: list[Fault] = []
        self._disk_filled = False

    @abstractmethod
    def lose_power(self) -> None:
        """The machine loses power: unsynced sectors and names survive by chance."""

    @property
    def _disk_failed(self) -> bool:
        """Whether an injected failure of a call happened under the present process."""
        return any(fault.hit for fault in self._disk_errors)

    def fail_a_call(self, calls: int, operation: str = "") -> None:
        """The ``calls``-th file call from now fails, as with a bad sector. It counts calls that
        change something, or calls of that name."""
        if self.process is not None:
            self.note(f"the disk fails in {calls} calls{operation and f' of {operation}'}")
            operations = (operation,) if operation else ()
            fault = Fault(calls, errno.EIO, operations=operations)
            self._disk_errors.append(self.fs.inject(fault))

    def fill_disk(self, room: int) -> None:
        """Leaves only ``room`` bytes free on the disk, until :meth:`free_disk`."""
        self.note(f"the disk has {room} bytes left")
        self._disk_filled = True
        self.fs.capacity = self.fs.used_bytes() + room

    def free_disk(self) -> None:
        """Ends :meth:`fill_disk`."""
        if self.fs.capacity is not None:
            self.note("the disk has room again")
            self.fs.capacity = None

    def replace_disk(self) -> None:
        """Replaces the disk by an empty one, while the machine is off."""
        self._lose_disk("gets an empty disk")
        self.fs.wipe()
        self.disk_copy = None

    def copy_disk(self) -> None:
        """Copies the disk in its present state, with writes in progress."""
        if self.node is not None:
            self.note("has its disk copied")
            core = self.node.core
            self.disk_copy = DiskCopy(self.fs.copy(), core.incarnation, core.entry_cache.last_index)

    def restore_disk(self, copy: DiskCopy) -> None:
        """Replaces the disk by the copy, while the machine is off."""
        self._lose_disk(f"gets a copy of its disk with a log to {copy.last_index} at most")
        self.fs.replace_with(copy.fs)
        self.fs.power_loss()
        self.disk_copy = None

    def _lose_disk(self, text: str) -> None:
        if self.node is not None:
            self.lost_index = max(self.lost_index, self.node.core.durable_index)
        self.lose_power()
        self.note(text)
        self.has_lost_disk = True
        self.disks_before_damage.keep(self.fs, self.now)
        self.damaged_checkpoints.clear()
        host: Any = self
        for observer in self.observers:
            observer.disk_replaced(host)

    def note_damage(self) -> None:
        """Notes that a part of its disk may be wrong from now on."""
        self.damaged = True
        self.disks_before_damage.keep(self.fs, self.now)

    def slow_disk(self, times: float) -> None:
        """Disk work takes this many times as long as on a good disk."""
        self.disk_slowness = times
        self.note(f"disk is {times:g} times as slow")
