"""Who lies to a NameServer wins for a while at most."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from broker.nameserver.registration_checks import (
    ContestedError,
    EarlierConnectionError,
    RegistrationRefusedError,
    StaleTermError,
)
from broker.nameserver.registrations import Registration
from broker.nameserver.route_table import RegisterResult, RouteTable
from tests.broker.nameserver.route_tables import C0, C1, N0, N1, N2, Tables

LIAR = "10.6.6.6:10911"
LIE = 20
"""The liar's connection."""

MEMBERS = (N0, N1, N2)
ROUND_MS = 30_000
BOUND_MS = 90_000


class TablesWithHosts(Tables):
    """Where the connections come from is known."""

    def __init__(self, hosts: dict[int, str]) -> None:
        super().__init__()
        self.hosts = hosts

    def register(self, registration: Registration, channel: int, host: str = "") -> RegisterResult:
        return super().register(registration, channel, self.hosts[channel])


@pytest.fixture
def tables() -> Tables:
    """A leader of term 5 and a follower."""
    made = Tables()
    truth(made)
    made.join(2, N1, members=MEMBERS, term=5)
    return made


def truth(tables: RouteTable) -> None:
    assert isinstance(tables, Tables)
    tables.join(0, N0, members=MEMBERS, term=5)


def leader_of(tables: Tables) -> str | None:
    addresses = tables.addresses()
    return None if addresses is None else addresses["broker-a"].get(0)


def until_true(tables: Tables, lie: Callable[[], object]) -> int:
    """The ms until the true leader is back, when it and the liar repeat themselves as they do."""
    began = tables.time.now
    while True:
        for claim in (lie, lambda: truth(tables)):
            with suppress(RegistrationRefusedError):
                claim()
        if leader_of(tables) == N0:
            return tables.time.now - began
        assert tables.time.now - began < 10 * BOUND_MS
        tables.time.now += ROUND_MS


def test_a_term_that_no_elections_can_have_reached_is_refused(tables: Tables) -> None:
    for term in (2**63 - 1, 2**62, 1_006):
        wrong = f"elections cannot lead from term 5 to {term} in 0 s"
        with pytest.raises(ContestedError, match=wrong):
            tables.join(0, N1, members=MEMBERS, term=term)
    truth(tables)
    tables.join(0, N1, members=MEMBERS, term=1_005)
    assert leader_of(tables) == N1


def test_a_stranger_does_not_lead_while_the_leader_repeats_itself(tables: Tables) -> None:
    with pytest.raises(ContestedError, match="is not a member of broker-a, which has a leader"):
        tables.join(0, LIAR, term=6, channel=LIE)
    tables.channel_closed(C0)
    tables.join(0, LIAR, term=6, channel=LIE)
    assert leader_of(tables) == LIAR


def test_a_stranger_that_follows_takes_no_members_place(tables: Tables) -> None:
    with pytest.raises(ContestedError, match=f"is not a member of broker-a, {N1} is"):
        tables.join(2, LIAR, channel=LIE)
    tables.join(9, LIAR, channel=LIE)  # as a new member does before the leader has told of it
    assert tables.addresses() == {"broker-a": {0: N0, 2: N1, 9: LIAR}}
    with pytest.raises(ContestedError):  # which makes nobody a member
        tables.join(0, LIAR, term=6, channel=LIE)


def test_a_follower_does_not_move_its_group_to_another_cluster(tables: Tables) -> None:
    tables.join(9, LIAR, channel=LIE, cluster="elsewhere")
    assert tables.clusters() == {"c": ["broker-a"]}


@pytest.mark.parametrize("address", [N0, N1, N2, LIAR])
@pytest.mark.parametrize("term", [6, 1_000, 2**62])
@pytest.mark.parametrize("first", [True, False])
def test_whatever_a_liar_registers_the_true_leader_is_back_in_time(
    address: str, term: int, first: bool
) -> None:
    tables = Tables()
    members = (address, LIAR)

    def lie() -> None:
        tables.join(0, address, members=members, term=term, channel=LIE)

    if first:
        lie()
    with suppress(RegistrationRefusedError):
        truth(tables)
    for _ in range(4):  # again and again
        assert until_true(tables, lie) <= BOUND_MS
        tables.time.now += ROUND_MS


def test_the_address_of_the_leader_is_no_others_for_long(tables: Tables) -> None:
    def lie() -> None:
        tables.join(7, N0, name="broker-x", channel=LIE)

    lie()
    assert leader_of(tables) is None
    with pytest.raises(EarlierConnectionError):
        truth(tables)
    assert until_true(tables, lie) <= BOUND_MS


def test_who_comes_from_the_host_of_an_address_has_it() -> None:
    tables = TablesWithHosts(
        {C0: "10.0.0.1", LIE: "10.6.6.6", LIE + 1: "10.0.0.1", LIE + 2: "10.6.6.6"}
    )
    tables.join(0, N0, term=5, channel=LIE)
    tables.join(0, N0, term=5, channel=C0)
    with pytest.raises(ContestedError, match="a process on that host has it"):
        tables.join(0, N0, term=5, channel=LIE)
    tables.join(0, N0, term=5, channel=LIE + 1)  # it was started again
    tables.time.now += 45_001
    tables.join(0, N0, term=5, channel=LIE + 2)  # it says nothing any more


def test_a_believed_leader_that_follows_lets_the_next_lead(tables: Tables) -> None:
    tables.join(0, N1, members=MEMBERS, term=900, channel=LIE)

    def lie() -> None:
        tables.join(0, N2, members=MEMBERS, term=900, channel=LIE)

    until_true(tables, lie)
    with pytest.raises(ContestedError, match=f"{N0} has repeated its claim to lead"):
        tables.join(0, N1, members=MEMBERS, term=6)
    tables.join(1, N0, members=MEMBERS, term=6)
    tables.join(0, N1, members=MEMBERS, term=6)
    assert leader_of(tables) == N1


def test_a_believed_leader_that_falls_silent_is_followed_by_the_next(tables: Tables) -> None:
    def lie() -> None:
        tables.join(0, N2, members=MEMBERS, term=900, channel=LIE)

    until_true(tables, lie)
    tables.time.now += 45_001
    tables.join(0, N1, members=MEMBERS, term=6)
    assert leader_of(tables) == N1


def test_a_deposed_leader_that_was_paused_between_two_refusals_is_not_believed() -> None:
    tables = Tables()
    tables.join(0, N1, members=MEMBERS, term=6)
    for _ in range(10):
        with pytest.raises(StaleTermError):
            truth(tables)
        tables.time.now += 45_001
        tables.join(0, N1, members=MEMBERS, term=6)


def test_what_was_refused_goes_with_its_connection(tables: Tables) -> None:
    tables.join(0, N1, members=MEMBERS, term=6)
    for _ in range(2):
        with pytest.raises(StaleTermError):
            truth(tables)
        tables.time.now += 30_000
    tables.channel_closed(C0)
    with pytest.raises(StaleTermError):
        truth(tables)


def test_only_the_connection_that_registered_a_broker_says_goodbye_for_it() -> None:
    tables = TablesWithHosts({C0: "10.0.0.1"})
    tables.leader()
    tables.unregister("broker-a", N0, LIE, "10.6.6.6")
    assert leader_of(tables) == N0
    tables.unregister("broker-a", N0, LIE, "10.0.0.1")
    assert leader_of(tables) is None


def test_a_question_over_another_connection_is_no_sign_of_life(tables: Tables) -> None:
    version = tables._live[N0].registration.table.data_version
    tables.time.now += 100_000
    assert tables.query_data_version(N0, version, LIE) == (False, version)
    assert tables.query_data_version(N1, version, C1) == (False, version)
    tables.time.now += 21_000
    assert [address for address, _ in tables.expire()] == [N0]
