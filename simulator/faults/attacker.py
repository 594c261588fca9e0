"""An attacker that reaches the peers' port: it greets as a member, and forges messages of members.

It knows the victim's term, log and last question, which is more than an outsider knows, and it has
seen what the victim received. It has no certificate of the member: it has none at all, or one of
another cluster, of another group, of a NameServer, or of a node that was removed from the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dledger.node.node import Node
from dledger.raft.messages import (
    AppendAccepted,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.wire.codec import MessageEncoder
from dledger.wire.greeting import Greeting
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.service_messages import HealthReport, RemovedNotice, SnapshotNeededNotice
from dledger.wire.transport import Message
from store.log.entry import EntryKind, build_entry

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from simulator.hosts.host import Host

ADDRESS = "10.9.9.9:10915"
TAKEN_OUT = "n77"

CERTIFICATES: Mapping[str, Callable[[PeerIdentity], PeerIdentity | None]] = {
    "nothing": lambda _member: None,
    "other-cluster": lambda member: member._replace(cluster="OtherCluster"),
    "other-group": lambda member: member._replace(group="broker-z"),
    "name-server": lambda member: PeerIdentity(member.cluster, "", "namesrv"),
    "other-node": lambda member: member._replace(node=TAKEN_OUT),
}
"""The name in the certificate, by the member that the attacker pretends to be."""


def _votes(node: Node, peer: str) -> Sequence[Message]:
    core = node.core
    disk = core.configuration.incarnations.get(peer, 0)
    last = core.entry_cache.last_index
    return [VoteResponse(core.term, True, pre, disk, last) for pre in (True, False)]


def _confirmations(node: Node, peer: str) -> Sequence[Message]:
    core = node.core
    disk, last = core.configuration.incarnations.get(peer, 0), core.entry_cache.last_index
    return [
        AppendAccepted(core.term, last, disk),
        HeartbeatResponse(core.term, last, last, 1 << 20, disk, last),
        ReadResponse(core.term, node.reads._number, 0),
    ]


def _entries(node: Node, _peer: str) -> Sequence[Message]:
    log = node.core.entry_cache
    index, term = log.last_index + 1, node.core.term + 1
    entry = build_entry(EntryKind.DATA, index, term, log.end_position, log.chain_crc, [b""])
    return [
        AppendRequest(term, log.last_index, log.last_term, index, (entry,)),
        Heartbeat(term, index, 1),
    ]


def _terms(node: Node, _peer: str) -> Sequence[Message]:
    core = node.core
    last = core.entry_cache.last_index + 1000
    return [
        Heartbeat(core.term + 1, core.commit_index, 1),
        VoteRequest(core.term + 2, last, core.term + 2, pre_vote=False, ordered=True),
        TimeoutNow(core.term + 1),
    ]


def _lies(node: Node, _peer: str) -> Sequence[Message]:
    last = node.core.entry_cache.last_index
    return [
        HealthReport(room=False, prompt=False, whole=False),
        RemovedNotice(last),
        SnapshotNeededNotice(last + 1000),
    ]


REPLAY = "replay"
FORGERIES: Mapping[str, Callable[[Node, str], Sequence[Message]]] = {
    "votes": _votes,
    "confirmations": _confirmations,
    "entries": _entries,
    "terms": _terms,
    "lies": _lies,
    REPLAY: lambda _node, _peer: [],
}
"""The messages of the attacker. A replay repeats what the victim received from anybody."""


def attack(cluster: FaultTarget, host: Host, peer: str, certificate: str, forgery: str) -> None:
    """An attacker with such a certificate connects to ``host`` as ``peer``."""
    node = host.node
    if node is None or host.name == peer:
        return
    member = host.certified._replace(node=peer)
    encoder = MessageEncoder()
    forged = [b"".join(encoder.encode(each)) for each in FORGERIES[forgery](node, peer)]

    def frames(heard: list[tuple[str, bytes]]) -> list[bytes]:
        return [frame for _, frame in heard] if forgery == REPLAY else forged

    greeting = Greeting(member.group, peer, ADDRESS)
    cluster.network.attack(host.name, greeting, CERTIFICATES[certificate](member), frames)
