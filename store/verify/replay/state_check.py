"""What the entries of the log make of the state in a checkpoint, made again, and compared.

The state is a function of the log, so replicas with a checkpoint of one entry have the same. What
of it can be made from the log alone is checked replica by replica: where queues end
(:mod:`store.verify.index.consume_queue_check`), who the members are, which message is the newest of
each segment, what was given up. The rest is the broker's, and is compared where checkpoints are of
the same entry. Where they are not, nothing is known of it, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from store.log.layout import segment_start
from store.state.machine_state import MachineState
from store.verify.findings import (
    INCOMPLETE,
    RESTORE,
    UNKNOWN_REPLICA,
    Finding,
    FindingKind,
    FindingLog,
)
from store.verify.majority import majority, proved
from store.verify.plan.ranges import GroupPlan, ReplicaRange
from store.verify.state.checkpoint_digest import StateDigest, canonical_configuration
from store.verify.state.state_files import SavedCheckpoint, StateFiles

_BEHIND_ALL = 1 << 63
ONE_STATE = "one state after the same entries in all replicas"
UNDECIDED = "nothing proves which replica is right: keep all copies, report it"


class SegmentTimes:
    """The store time of the newest message up to the end of each segment, entry after entry."""

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._times: dict[int, int | None] = {}
        self.last_ms: int | None = None

    def take(self, position: int, last_ms: int | None) -> None:
        """Entries of one segment, in order, from ``position`` on; ``last_ms`` is that of their last
        message, if there is any."""
        if last_ms is not None:
            self.last_ms = last_ms
        self._times[segment_start(position, self._segment_size)] = self.last_ms

    def found(self) -> tuple[tuple[int, int | None], ...]:
        return tuple(self._times.items())


def check_state(state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog) -> None:
    """Tells what of a replica's checkpoints, and of its mark, is not as the log makes it.

    ``parts`` are its ranges, in order; a range ends where a checkpoint does.
    """
    parts = [part for part in parts if part.state is not None]
    for older in state.older:
        before = [part for part in parts if part.last_index <= older.checkpoint.index]
        _check_one(state, older, before, log)
    if state.checkpoint is not None:
        newest = SavedCheckpoint(state.checkpoint_path, state.checkpoint, state.machine)
        _check_one(state, newest, parts, log)


def _check_one(
    state: StateFiles, saved: SavedCheckpoint, parts: Sequence[ReplicaRange], log: FindingLog
) -> None:
    checkpoint, machine = saved.checkpoint, saved.machine
    covered = [part.state for part in parts if part.state is not None]
    if machine is None or any(each.lost for each in covered):
        return
    is_whole = state.mark.first_index == 0
    expired = max((part.keys.expired_position for part in parts), default=0)
    wrong: list[tuple[str, str]] = []
    if machine.expired_position < expired or (is_whole and machine.expired_position > expired):
        wrong.append((f"what is below {expired} given up", f"{machine.expired_position}"))
    if machine.broker:
        wrong += _check_times(state, machine, parts, max(expired, machine.expired_position))
    configured = [each.configuration for each in covered if each.configuration is not None]
    if configured or is_whole:
        right = configured[-1] if configured else b""
        if canonical_configuration(right) != canonical_configuration(checkpoint.configuration):
            wrong.append((f"the members {_text(right)}", _text(checkpoint.configuration)))
    for expected, found in wrong:
        log.add(FindingKind.CHECKPOINT, saved.path, 16, expected, found, first=checkpoint.index)


def _check_times(
    state: StateFiles, machine: MachineState, parts: Sequence[ReplicaRange], expired: int
) -> list[tuple[str, str]]:
    size = state.identity.segment_size
    last_ms = 0 if state.mark.first_index == 0 else None
    right: dict[int, int] = {}
    unknown = set()
    for part in parts:
        if part.state is None:
            continue
        for start, found in part.state.times:
            time_ms = last_ms if found is None else found
            if time_ms is None:
                unknown.add(start)
            else:
                right[start] = time_ms
        last_ms = last_ms if part.state.last_ms is None else part.state.last_ms
    kept = segment_start(expired, size)
    first = min({*right, *unknown}, default=_BEHIND_ALL)
    wrong = []
    for start in sorted({*right, *machine.segment_times}):
        stated = machine.segment_times.get(start)
        if start in right and start >= kept:
            is_right = stated == right[start]
        else:  # expired, or before the log that this replica has
            is_right = stated is None or start in unknown or kept <= start < first
        if not is_right:
            expected = f"{right[start]} ms" if start in right and start >= kept else "none"
            wrong.append(
                (
                    f"as time of the newest message in the segment of {start}: {expected}",
                    "none" if stated is None else f"{stated} ms",
                )
            )
    return wrong


def check_beginning(state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog) -> None:
    """A log begins no later than where the group has given up what was before."""
    machine, mark = state.machine, state.mark
    lost = any(part.state is not None and part.state.lost for part in parts)
    if machine is None or lost:
        return
    given_up = max([machine.expired_position, *(part.keys.expired_position for part in parts)])
    if mark.first_position > given_up:
        log.add(
            FindingKind.MARK,
            state.mark_path,
            0,
            f"a log that begins at {given_up} or before, as no more was given up",
            f"one that begins at {mark.first_position}",
            first=mark.first_index,
        )


def check_named(state: StateFiles, last_index: int, log: FindingLog) -> None:
    """Tells of mark, checkpoints and manifest that vouch for entries which are not there.

    ``last_index`` is the last entry that there is, or was: of lost ones is told by themselves.
    """
    named = [(FindingKind.MARK, state.mark_path, state.mark.index)]
    named += [(FindingKind.CHECKPOINT, older.path, older.checkpoint.index) for older in state.older]
    if state.checkpoint is not None:
        named.append((FindingKind.CHECKPOINT, state.checkpoint_path, state.checkpoint.index))
    if state.manifest is not None:
        # Behind the end of a snapshot nothing is looked at.
        end = state.manifest.commit_index
        named = [each for each in named if each[2] <= end]
        named.append((FindingKind.FORMAT, state.manifest_path, end))
    for kind, path, index in named:
        if index > last_index:
            log.add(
                kind,
                path,
                0,
                f"a log with entry {index}",
                "one that ends before",
                INCOMPLETE if path == state.manifest_path else RESTORE,
                first=index,
            )


def _text(data: bytes) -> str:
    return data.decode(errors="replace") or "that everybody began with"


# --- between replicas


def compare_states(group: GroupPlan) -> list[str]:
    """A word for each replica: ``same`` where another one has that state after the same entry,
    ``differs`` where one has another, ``unknown`` where none has a checkpoint of an entry of its.
    """
    words = []
    for replica in group.replicas:
        others = [
            other.digest == digest.digest
            for digest in replica.digests
            for another in group.replicas
            if another.name != replica.name
            for other in another.digests
            if _at_one_entry(digest, other)
        ]
        words.append("unknown" if not others else "same" if all(others) else "differs")
    return words


def check_states(
    group: GroupPlan, wrong: Sequence[Finding], proofs: Collection[tuple[int, int]]
) -> list[Finding]:
    """Tells of states that differ after the same entry.

    Replicas of whose checkpoints something is known to be wrong have no say, and are told already.
    ``proofs`` are place and entry of the checkpoints that follow from the log: who has another one
    is wrong. Among others nobody is accused; see :mod:`store.verify.majority`.
    """
    known = {finding.replica for finding in wrong if finding.kind is FindingKind.CHECKPOINT}
    by_entry: dict[tuple[int, int], list[tuple[int, StateDigest]]] = {}
    for place, replica in enumerate(group.replicas):
        if replica.name not in known:
            for digest in replica.digests:
                by_entry.setdefault((digest.index, digest.chain), []).append((place, digest))
    findings = []
    for (index, _chain), said in sorted(by_entry.items()):
        if len({digest.digest for _, digest in said}) > 1:
            guilty = {place for place, _ in said if (place, index) not in proofs}
            right = proved([(digest.digest, place) for place, digest in said], guilty)
            findings += _different_states(group, index, said, right)
    return findings


def _different_states(
    group: GroupPlan, index: int, said: Sequence[tuple[int, StateDigest]], right: bytes | None
) -> list[Finding]:
    names = [group.replicas[place].name for place, _ in said]
    digests = [digest.digest for _, digest in said]
    side = majority(list(zip(digests, names, strict=True))) if right is None else right
    agreeing = tuple(
        dict.fromkeys(name for name, one in zip(names, digests, strict=True) if one == side)
    )
    told = ", ".join(f"{one.hex()[:8]} in {name}" for name, one in zip(names, digests, strict=True))
    odd = [
        (name, digest)
        for name, (_, digest) in zip(names, said, strict=True)
        if digest.digest != side
    ]
    return [
        Finding(
            FindingKind.DIVERGENCE if right is None else FindingKind.CHECKPOINT,
            UNKNOWN_REPLICA if right is None else name,
            index,
            index,
            digest.path,
            16,
            ONE_STATE,
            told,
            UNDECIDED if right is None else RESTORE,
            agreeing,
        )
        for name, digest in (odd if side is not None else odd[:1])
    ]


def _at_one_entry(one: StateDigest, other: StateDigest) -> bool:
    return (one.index, one.chain) == (other.index, other.chain)
