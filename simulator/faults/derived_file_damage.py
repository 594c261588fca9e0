"""Damage at rest to derived files: checkpoints, ConsumeQueues, both indexes.

The bounds are those of ``faults/disk_damage.py``: a minority of the machines of a run. A machine
whose log has expired also keeps one intact checkpoint, because it cannot start without one
(``docs/safety.md``). Checkpoints and ConsumeQueues of one machine are not both damaged, because the
log may no longer have what an older checkpoint says of queues. A damaged machine must start and
repair itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.disk_file import SECTOR_SIZE
from simulator.hosts.disk_host import DIRECTORY
from simulator.hosts.durable_state import durable_mark

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from simulator.hosts.host import Host

CHECKPOINTS, QUEUES, KEYS = "checkpoint", "ConsumeQueue", "keyindex"
PARTS = {
    CHECKPOINTS: "state/checkpoint-",
    QUEUES: "consumequeue/",
    KEYS: "keyindex/",
    "index": "index/",
}
"""By part, the beginning of the paths of its files."""

EITHER_OR = {CHECKPOINTS: QUEUES, QUEUES: CHECKPOINTS}

FLIPPED, ZEROED, CUT, LOST, UNREADABLE = "flipped", "zeroed", "cut", "lost", "unreadable"
WAYS = (FLIPPED, ZEROED, CUT, LOST, UNREADABLE)
"""A bit flips; a sector is zeroed; the file is cut, removed, or unreadable there."""


def damage_file(cluster: FaultTarget, host: Host, part: str, way: str, share: float) -> None:
    """Damages a file of that part in this way, on a machine that is then down; ``share``: where in
    the part. It does nothing without a file to damage, or if the damage would be too much."""
    if not cluster.atlas.allows(host.name):
        return
    place = _place(host, part, share)
    if place is None or EITHER_OR.get(part) in host.damaged_parts:
        return
    if part == CHECKPOINTS and not _other_checkpoint(host, place[0]):
        return
    cluster.atlas.damaged[host.name] = None
    host.crash()
    path, byte = place
    if path not in host.fs.files():
        return  # a process that dies leaves nothing half done behind; one that ended before may
    host.damaged_parts[part] = host.boot
    if part == CHECKPOINTS:
        host.damaged_checkpoints[path] = None
    host.note(f"{path} is {way} at {byte}")
    host.coverage_mark(f"{part} damaged at rest")
    _damage(host, path, way, byte)


def _damage(host: Host, path: str, way: str, byte: int) -> None:
    if way == FLIPPED:
        host.fs.flip_bit(path, byte, byte % 8)
    elif way == ZEROED:
        size = len(host.fs.visible_bytes(path))
        begin = byte - byte % SECTOR_SIZE
        host.fs.overwrite(path, bytes(min(SECTOR_SIZE, size - begin)), begin)
    elif way == CUT:
        host.fs.cut(path, byte)
    elif way == LOST:
        host.fs.vanish(path)
    else:
        host.coverage_mark("sector cannot be read")
        host.fs.lose_sector(path, byte)


def _place(host: Host, part: str, share: float) -> tuple[str, int] | None:
    """File and byte."""
    begin = f"{DIRECTORY}/{PARTS[part]}"
    paths = [path for path in host.fs.files() if path.startswith(begin) and path[-1].isdigit()]
    sizes = {path: len(host.fs.visible_bytes(path)) for path in paths}
    at = int(share * sum(sizes.values()))
    for path, size in sizes.items():
        if at < size:
            return path, at
        at -= size
    return None


def _other_checkpoint(host: Host, path: str) -> bool:
    """Whether the machine needs no checkpoint, or the disk has another whole one of an entry from
    which the log leads on."""
    mark = durable_mark(host)
    if mark is None:
        return False
    if mark.first_index == 0:
        return True
    for other in host.fs.files():
        name = other.rpartition("-")[2]
        begins = other.startswith(f"{DIRECTORY}/{PARTS[CHECKPOINTS]}") and name.isdigit()
        if not begins or other == path or other in host.damaged_checkpoints:
            continue
        on_disk = host.fs.durable_bytes(other) == host.fs.visible_bytes(other)
        if on_disk and int(name) >= mark.first_index - 1:
            return True
    return False
