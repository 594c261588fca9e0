"""Planted bugs O of the door for peers: somebody gets in who is not whom he says."""

from __future__ import annotations

from typing import Any

from dledger.wire.peer_identity import Admission
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.faults.node_faults import ATTACKER

SAYS = (
    "lacks the committed entry | has another log below | commits another entry | applies payload"
    " | both lead | only the disks of | stops by itself"
)
bug = BugsOf(seconds=12.0)


@bug("O1x", SAYS, 30, ATTACKER)
def name_in_the_greeting_not_compared(patch: Patch) -> None:
    """The name in a greeting, and of who was dialled, is not compared with the certificate's."""
    patch.set(Admission, "_check_name", lambda _admission, _node, _certified: None)


@bug("O2x", SAYS, 30, ATTACKER)
def answering_peer_not_checked(patch: Patch) -> None:
    """Whoever answers where a peer is dialled is taken for it, whatever its certificate names."""
    patch.set(Admission, "check_dialled", lambda _admission, _peer, _certified: None)


@bug("O3x", SAYS, 30, ATTACKER)
def certificate_not_required(patch: Patch) -> None:
    """An enforcing node lets in who has no certificate, and believes what it says."""

    @patch.around(Admission, "check_connected")
    def lenient(connected: Original[None], admission: Admission, certified: Any) -> None:
        if certified is not None:
            connected(admission, certified)


@bug("O4x", SAYS, 30, ATTACKER)
def certificate_of_any_cluster_taken(patch: Patch) -> None:
    """Of a certificate the node's name counts alone, and not the cluster and the group."""

    @patch.around(Admission, "_check_name")
    def careless(
        name_checked: Original[None], admission: Admission, node: str, certified: Any
    ) -> None:
        if certified is None or certified.node != node:
            name_checked(admission, node, certified)

    @patch.around(Admission, "check_connected")
    def required(connected: Original[None], admission: Admission, certified: Any) -> None:
        if certified is None:
            connected(admission, certified)
