"""The check of states in checkpoints: against the log, and between replicas.

The state is a function of the log, so all checkpoints of one entry have the same state. These parts
are checked replica by replica: where queues end
(:mod:`store.verify.index.consume_queue_check`), the members, the newest message of each segment,
and what has expired. :mod:`store.verify.replay.broker_state_check` checks the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from store.log.layout import segment_start
from store.state.machine_state import MachineState
from store.verify.findings import RESTORE, UNKNOWN_REPLICA, Finding, FindingKind, FindingLog
from store.verify.majority import majority, proved
from store.verify.plan.ranges import GroupPlan, ReplicaRange
from store.verify.state.checkpoint_digest import StateDigest, canonical_configuration
from store.verify.state.state_files import SavedCheckpoint, StateFiles

_BEHIND_ALL = 1 << 63
ONE_STATE = "one state after the same entries in all replicas"
UNDECIDED = "nothing proves which replica is right: keep all copies, report it"


class SegmentTimes:
    """The store time of the newest message up to the end of each segment."""

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._times: dict[int, int | None] = {}
        self.last_ms: int | None = None

    def take(self, position: int, last_ms: int | None) -> None:
        """Takes entries of one segment, from ``position`` on.

        ``last_ms``: the store time of their last message; ``None`` without a message.
        """
        if last_ms is not None:
            self.last_ms = last_ms
        self._times[segment_start(position, self._segment_size)] = self.last_ms

    def found(self) -> tuple[tuple[int, int | None], ...]:
        return tuple(self._times.items())


def check_state(state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog) -> None:
    """Compares the checkpoints of a replica with its log.

    ``parts``: its ranges, in order. No range goes beyond a checkpoint.
    """
    newest = state.checkpoint_index
    for saved in state.checkpoints:
        is_hidden = state.rebuilds and saved.index == newest
        machine = None if is_hidden else saved.machine
        before = [part for part in parts if part.state and part.last_index <= saved.index]
        if machine is not None and not any(part.state and part.state.lost for part in before):
            _check_one(state, saved, machine, before, log)


def _check_one(
    state: StateFiles,
    saved: SavedCheckpoint,
    machine: MachineState,
    parts: Sequence[ReplicaRange],
    log: FindingLog,
) -> None:
    is_whole = state.mark.first_index == 0
    expired = max((part.keys.expired_position for part in parts), default=0)
    wrong: list[tuple[str, str]] = []
    if machine.expired_position < expired or (is_whole and machine.expired_position > expired):
        wrong.append((f"what is below {expired} expired", f"{machine.expired_position}"))
    if machine.broker:
        wrong += _check_times(state, machine, parts, max(expired, machine.expired_position))
    covered = [part.state for part in parts if part.state is not None]
    configured = [each.configuration for each in covered if each.configuration is not None]
    if configured or is_whole:
        right, found = configured[-1] if configured else b"", saved.checkpoint.configuration
        if canonical_configuration(right) != canonical_configuration(found):
            wrong.append((f"the members {_text(right)}", _text(found)))
    for expected, said in wrong:
        log.add(FindingKind.CHECKPOINT, saved.path, 16, expected, said, first=saved.index)


def _check_times(
    state: StateFiles, machine: MachineState, parts: Sequence[ReplicaRange], expired: int
) -> list[tuple[str, str]]:
    """Segments with another time than the log gives: what is expected, and what was found."""
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
            is_right, expected = stated == right[start], f"{right[start]} ms"
        else:  # expired, or before the log of this replica
            is_right = stated is None or start in unknown or kept <= start < first
            expected = "none"
        if not is_right:
            what = f"as time of the newest message in the segment of {start}: {expected}"
            wrong.append((what, "none" if stated is None else f"{stated} ms"))
    return wrong


def check_beginning(state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog) -> None:
    """Checks that a log begins where the expired part ends, or before."""
    machine, mark = state.machine, state.mark
    lost = any(part.state is not None and part.state.lost for part in parts)
    if machine is None or lost:
        return
    expired = max([machine.expired_position, *(part.keys.expired_position for part in parts)])
    if mark.first_position > expired:
        expected = f"a log that begins at {expired} or before, as no more has expired"
        found, first = f"one that begins at {mark.first_position}", mark.first_index
        log.add(FindingKind.MARK, state.mark_path, 0, expected, found, first=first)


def check_named_entries(state: StateFiles, last_index: int, log: FindingLog) -> None:
    """Checks that mark, checkpoints and manifest name no entries behind the end of the log.

    ``last_index``: the last entry, even if it is lost: lost entries are findings themselves.
    """
    named = state.named_entries()
    if state.manifest is not None:  # a snapshot is not read behind its end
        named = [one for one in named if one.index <= state.manifest.commit_index]
    for one in named:
        if one.index > last_index:
            expected, found = f"a log with entry {one.index}", "one that ends before"
            log.add(one.kind, one.path, 0, expected, found, one.advice, first=one.index)


def _text(data: bytes) -> str:
    return data.decode(errors="replace") or "that everybody began with"


# --- between replicas


def compare_states(group: GroupPlan) -> list[str]:
    """A word for each replica.

    ``same`` if another replica has the same state after the same entry, ``differs`` if one has
    another state, ``unknown`` if no other replica has a checkpoint of the same entry.
    """
    words = []
    for replica in group.replicas:
        others = [
            other.digest == digest.digest
            for digest in replica.digests
            for another in group.replicas
            if another.name != replica.name
            for other in another.digests
            if (other.index, other.chain) == (digest.index, digest.chain)
        ]
        words.append("unknown" if not others else "same" if all(others) else "differs")
    return words


def check_states(
    group: GroupPlan, wrong: Sequence[Finding], proofs: Collection[tuple[int, int]]
) -> list[Finding]:
    """Findings where states differ after the same entry.

    Replicas with other findings about their checkpoints (in ``wrong``) do not count. ``proofs``:
    place and entry of the checkpoints whose state follows from the log. Another state of that entry
    is wrong. Without a proof no replica is named as wrong (:mod:`store.verify.majority`).
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
    named = [(digest, group.replicas[place].name) for place, digest in said]
    side = right or majority([(digest.digest, name) for digest, name in named])
    agreeing = tuple(dict.fromkeys(name for digest, name in named if digest.digest == side))
    digests = ", ".join(f"{digest.digest.hex()[:8]} in {name}" for digest, name in named)
    kind = FindingKind.DIVERGENCE if right is None else FindingKind.CHECKPOINT
    advice = UNDECIDED if right is None else RESTORE
    findings = []
    for digest, name in named:
        if digest.digest != side:
            log = FindingLog(UNKNOWN_REPLICA if right is None else name)
            log.add(
                kind, digest.path, 16, ONE_STATE, digests, advice, first=index, majority=agreeing
            )
            findings += log.findings
    return findings if side is not None else findings[:1]
