"""Damage to disks at rest, and which disks may be damaged.

The process of a damaged machine is down (it is crashed first). Only a minority of the machines of a
run is damaged, and only bytes below the durable mark. So the others keep a good copy of every
committed entry, and a node can notice each loss. If more is lost, there is no right outcome.

A node with a damaged log may refuse to start, or repair itself. It must not serve, vote or answer
as if nothing had happened. Damage of derived files is no reason to refuse
(``faults/derived_file_damage.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.configuration import LOST_INCARNATION, NO_INCARNATION
from simulator.engine.disk_file import SECTOR_SIZE
from simulator.hosts.durable_state import (
    LOG_DIRECTORY,
    checkpoint_end,
    durable_mark,
    saved_evidence,
)
from store.log.layout import segment_name, segment_start

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from simulator.hosts.disk_host import DiskCopy
    from simulator.hosts.host import Host


def flip_bit(cluster: FaultTarget, host: Host, share: float, bit: int) -> None:
    """Flips one bit of the log."""
    place = _strike(cluster, host, share)
    if place is not None:
        host.note(f"bit {bit} flips at {place[0]}:{place[1]}")
        host.fs.flip_bit(*place, bit % 8)


def lose_file(cluster: FaultTarget, host: Host, share: float) -> None:
    """Removes a segment."""
    place = _strike(cluster, host, share)
    if place is not None:
        host.note(f"{place[0]} is lost")
        host.fs.vanish(place[0])


def cut_file(cluster: FaultTarget, host: Host, share: float) -> None:
    """Cuts the end of a segment."""
    place = _strike(cluster, host, share)
    if place is not None:
        host.note(f"{place[0]} is cut at {place[1]}")
        host.fs.cut(*place)


def swap_files(cluster: FaultTarget, host: Host, one: float, other: float) -> None:
    """Swaps the bytes of two segments."""
    here, there = _place(host, one), _place(host, other)
    if here is None or there is None or here[0] == there[0]:
        return
    if _strike(cluster, host, one, swaps=True) is not None:
        host.note(f"{here[0]} and {there[0]} are swapped")
        host.fs.swap(here[0], there[0])
        host.files_swapped = True


def misdirect_write(cluster: FaultTarget, host: Host, source: float, target: float) -> None:
    """Writes a sector of one place to another place, too."""
    here, there = _place(host, source), _place(host, target)
    if here is None or there is None:
        return
    from_at, to_at = (place[1] - place[1] % SECTOR_SIZE for place in (here, there))
    sector = host.fs.durable_bytes(here[0], from_at, SECTOR_SIZE)
    if sector and (here[0], from_at) != (there[0], to_at):
        if sector == host.fs.durable_bytes(there[0], to_at, len(sector)):
            return
        # Only what is marked as durable may be damaged.
        end = _marked_in(host, there[0])
        if to_at < end and _strike(cluster, host, target) is not None:
            host.note(f"a sector of {here[0]}:{from_at} is written to {there[0]}:{to_at}")
            host.fs.overwrite(there[0], sector[: end - to_at], to_at)


def lose_sector(cluster: FaultTarget, host: Host, share: float) -> None:
    """Makes a sector of the log unreadable."""
    place = _strike(cluster, host, share)
    if place is not None:
        host.note(f"{place[0]} cannot be read at {place[1]}")
        host.coverage_mark("sector cannot be read")
        host.fs.lose_sector(*place)


def lose_unapplied(cluster: FaultTarget, host: Host, share: float, size: int) -> None:
    """The disk cannot read ``size`` bytes of what a start must read: behind the newest checkpoint,
    and below the durable mark."""
    end = checkpoint_end(host)
    mark = durable_mark(host)
    if mark is None or end >= mark.position:
        return
    log_share = end + share * (mark.position - end) - mark.first_position
    place = _strike(cluster, host, log_share / (mark.position - mark.first_position))
    if place is not None:
        path, byte = place
        size = min(size, _marked_in(host, path) - byte, len(host.fs.visible_bytes(path)) - byte)
        host.note(f"{path} cannot be read from {byte} to {byte + size}, behind the checkpoint")
        host.coverage_mark("sector behind the checkpoint cannot be read")
        host.fs.lose_sector(path, byte, size)


def wipe_disk(cluster: FaultTarget, host: Host) -> None:
    """All of a disk is lost, of a voter with a disk that the log names.

    It must come back by itself, and nothing may stop with an error because of it. All others hold
    something of the log, or have saved on which disk they met this one. Else the empty ones that
    never heard of it elect one of them, as in a new group (``docs/safety.md``).
    """
    if not _all_disks_noted(cluster, host):
        return
    others = [other for other in cluster.hosts if other is not host]
    if not all(_holds_something(other) or _met(cluster, other, host) for other in others):
        return
    if cluster.atlas.allows(host.name):
        cluster.atlas.damaged[host.name] = None
        host.replace_disk()
        host.coverage_mark("disk replaced by an empty one")


def _holds_something(host: Host) -> bool:
    mark = durable_mark(host)
    return mark is not None and mark.index >= 0


def _met(cluster: FaultTarget, other: Host, host: Host) -> bool:
    """Whether an empty machine, which was never wiped itself, knows the disk that counts for
    ``host``, also after a power failure."""
    leader = cluster.leader()
    if other.has_lost_disk or leader is None or leader.node is None:
        return False
    noted = leader.node.core.configuration.incarnations[host.name]
    return any(
        (held.node, held.incarnation) == (host.name, noted) for held in saved_evidence(other)
    )


def restore_disk(cluster: FaultTarget, host: Host) -> None:
    """An old copy of a disk replaces it, if all others have saved what this disk held.

    A group promises to recognise that (``docs/safety.md``), until the copy holds as much again. No
    other disk of the run is damaged: it might have been the only one that knew.
    """
    copy = host.disk_copy
    if (
        copy is None
        or host.damaged
        or host.node is None
        or host.node.core.incarnation != copy.incarnation
        or not _all_disks_noted(cluster, host)
    ):
        return
    for other in cluster.hosts:
        if other is not host and not _knows(other, host, copy):
            return
    if cluster.atlas.alone(host.name):
        host.restore_disk(copy)
        host.coverage_mark("old copy of a disk put back")


def _knows(knowing: Host, host: Host, copy: DiskCopy) -> bool:
    assert host.node is not None  # noqa: S101 - the caller has looked
    needed = max(copy.last_index + 1, host.node.core.durable_index)
    return any(
        held.node == host.name
        and held.incarnation == copy.incarnation
        and held.last_index >= needed
        for held in saved_evidence(knowing)
    )


def _all_disks_noted(cluster: FaultTarget, host: Host) -> bool:
    """Whether all machines vote, and the log names this one's disk."""
    leader = cluster.leader()
    if leader is None or leader.node is None:
        return False
    core = leader.node.core
    found = core.configuration
    return (
        not found.is_joint
        and len(found.voters) == len(cluster.hosts)
        and core.configurations.index <= core.commit_index
        and found.incarnations.get(host.name, NO_INCARNATION) > LOST_INCARNATION
    )


def _strike(
    cluster: FaultTarget, host: Host, share: float, *, swaps: bool = False
) -> tuple[str, int] | None:
    """File and byte to damage, on a machine that is down then; ``None`` if nothing may be damaged.

    Nothing is damaged while another machine is empty: that one votes only for empty nodes, and
    while this one waits for what it lacks, the rest may be no majority (``docs/safety.md``).

    While files are swapped, no name says which bytes are durable: they may be swapped once more.
    Once the log was opened on such files, nothing else is damaged until all of it was read again.
    """
    place = _place(host, share)
    if host.holds_old_bytes or (host.files_swapped and not swaps):
        return None
    if place is None or not cluster.atlas.allows(host.name) or _members_away(cluster):
        return None
    if not all(_holds_something(other) for other in cluster.hosts if other is not host):
        return None
    cluster.atlas.damaged[host.name] = None
    host.crash()
    host.note_damage()
    host.coverage_mark("disk damaged at rest")
    return place


def _members_away(cluster: FaultTarget) -> bool:
    """Whether the last known log of any host has fewer voters than there are hosts: then each one
    is needed."""
    known = cluster.known_members.values()
    return any(each.old_voters or len(each.voters) < len(cluster.hosts) for each in known)


def _place(host: Host, share: float) -> tuple[str, int] | None:
    mark = durable_mark(host)
    if mark is None or mark.position <= mark.first_position:
        return None
    marked = mark.position - mark.first_position
    position = mark.first_position + min(int(share * marked), marked - 1)
    start = segment_start(position, host.segment_size)
    path = f"{LOG_DIRECTORY}/{segment_name(start)}"
    size = len(host.fs.durable_bytes(path) or b"")
    return (path, position - start) if position - start < size else None


def _marked_in(host: Host, path: str) -> int:
    """The bytes of the file below the durable mark."""
    mark = durable_mark(host)
    start = int(path.rpartition("/")[2])
    return 0 if mark is None else min(mark.position - start, host.segment_size)
