"""Planted bugs N: registrations at NameServers, and routes of clients."""

from __future__ import annotations

from broker.server.announcements import Announcements
from broker.server.name_server_registration import Announcement, Registrar
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS

LEADERS = ("crash", "partition", "pause")
bug = BugsOf(BROKERS, seconds=8.0)


@bug("N51x", "names no leader", 5, *LEADERS)
def new_leader_not_announced(patch: Patch) -> None:
    """A new leader registers at NameServers with its next regular registration only."""
    patch.set(Announcements, "refresh", lambda _announcements: None)


@bug("N52x", "names no leader", 10, "NameServer crash")
def returned_nameserver_not_registered_at(patch: Patch) -> None:
    """A NameServer that was away gets the next regular registration only."""
    patch.set(Registrar, "_retry_soon", lambda _registrar, _nameserver: None)


@bug("N53x", "as the leader of", 30, *LEADERS)
def every_member_leads(patch: Patch) -> None:
    """Each member registers as the leader."""

    @patch.around(Announcements, "current")
    def boasting(current: Original[Announcement], announcements: Announcements) -> Announcement:
        return current(announcements)._replace(broker_id=0)
