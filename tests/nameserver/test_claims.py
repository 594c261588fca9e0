"""Who lies to a NameServer wins for a while at most, and what anybody says has limits."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from struct import pack

import orjson
import pytest

from broker.limits import NAMESERVER
from broker.nameserver.claims import (
    ContestedError,
    EarlierConnectionError,
    RegistrationRefusedError,
    StaleTermError,
    TooManyError,
)
from broker.nameserver.registered import Registration
from broker.nameserver.routes import RegisterResult, RouteTable
from broker.nameserver.topictable import decode_topic_table
from broker.remoting.codes import RequestCode
from broker.remoting.errors import FieldError
from tests.nameserver.test_routes import C0, C1, N0, N1, N2, Tables
from tests.nameserver.test_server import Tool, broker_ext, start, table
from tests.remoting.virtualnet import VirtualLoop, in_virtual_time, turns

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
        with pytest.raises(ContestedError, match=f"no elections lead from term 5 to {term} in 0 s"):
            tables.join(0, N1, members=MEMBERS, term=term)
    truth(tables)
    tables.join(0, N1, members=MEMBERS, term=1_005)
    assert leader_of(tables) == N1


def test_a_stranger_does_not_lead_while_the_leader_repeats_itself(tables: Tables) -> None:
    with pytest.raises(ContestedError, match="is no member of broker-a, which has a leader"):
        tables.join(0, LIAR, term=6, channel=LIE)
    tables.channel_closed(C0)
    tables.join(0, LIAR, term=6, channel=LIE)
    assert leader_of(tables) == LIAR


def test_a_stranger_that_follows_takes_no_members_place(tables: Tables) -> None:
    with pytest.raises(ContestedError, match=f"is no member of broker-a, {N1} is"):
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
    with pytest.raises(ContestedError, match=f"{N0} has insisted that it leads"):
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


# --- limits


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"processes_max": 2}, "2 brokers are known, at most 2 are allowed"),
        ({"connection_processes_max": 2}, "2 brokers are known over this connection, at most 2"),
        ({"all_topics_max": 2}, "all brokers would have 3 topics, at most 2 are allowed"),
    ],
)
def test_there_is_room_for_so_many(
    limits: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.nameserver.routes.NAMESERVER", replace(NAMESERVER, **limits))
    tables = Tables()
    for _ in range(2):
        for number in (0, 1):
            tables.join(0, f"h{number}:1", name=f"b{number}", channel=C0)
    with pytest.raises(TooManyError, match=why):
        tables.join(0, "h2:1", name="b2", channel=C0)
    tables.unregister("b1", "h1:1", C0)
    tables.join(0, "h2:1", name="b2", channel=C0)


def test_gone_names_and_members_are_remembered_up_to_a_limit() -> None:
    tables = Tables()
    for number in range(NAMESERVER.gone_names_max + 5):
        tables.join(0, N0, name=f"b{number}")
        tables.channel_closed(C0)
    gone = tables.gone.as_json()
    assert len(gone) == NAMESERVER.gone_names_max
    assert "b0" not in gone
    for number in range(NAMESERVER.members_max + 5):
        tables.join(number + 1, f"h{number}:1", channel=number)
    assert len(tables._names["broker-a"].members) == NAMESERVER.members_max


class Steps(dict[str, object]):
    """Counts what is looked at."""

    count = 0

    def __iter__(self):  # type: ignore[no-untyped-def]  # as dict has it
        for key in super().__iter__():
            self.count += 1
            yield key

    def items(self):  # type: ignore[no-untyped-def]  # as dict has it
        self.count += len(self)
        return super().items()

    def values(self):  # type: ignore[no-untyped-def]  # as dict has it
        self.count += len(self)
        return super().values()


def test_who_leaves_costs_steps_for_what_it_registered_alone() -> None:
    tables = Tables()
    seen = [Steps(), Steps(), Steps()]
    tables._live, tables._queues, tables._names = seen  # type: ignore[assignment]
    tables._claims._live = tables._live
    for number in range(500):
        tables.join(0, f"h{number}:1", f"t{number}", "T", name=f"b{number}", channel=number)
    for steps in seen:
        steps.count = 0
    tables.join(0, "h3:1", "u3", name="b3", channel=3, version=2, term=1)
    tables.wipe_write_perm("b3")
    assert tables.channel_closed(3) == ["h3:1"]
    assert [steps.count for steps in seen] == [0, 0, 0]
    assert tables.route("u3") is None
    assert len(tables.topics()) == 500


@in_virtual_time
async def test_brokers_of_a_closed_connection_go_one_in_a_turn(loop: VirtualLoop) -> None:
    nameserver = await start(loop)
    broker, tool = Tool(loop), Tool(loop)
    for number in range(64):
        await broker.register(table("T"), address=f"h{number}:1", brokerName=f"b{number}")
    refused = await broker.ask(
        RequestCode.REGISTER_BROKER, broker_ext("h64:1", brokerName="b64"), table("T")
    )
    assert refused.remark == "64 brokers are known over this connection, at most 64 are allowed"
    await broker.close()
    await turns(3)
    left = len(nameserver.routes.clusters()["DefaultCluster"])
    assert 50 < left < 64
    await asyncio.sleep(1)
    assert await tool.topics() == []
    assert nameserver._refused == {}


@in_virtual_time
async def test_a_registration_that_cannot_be_is_refused(loop: VirtualLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    long = "x" * (NAMESERVER.name_size_max + 1)
    for ext, remark in (
        (
            {"term": str(NAMESERVER.term_max + 1)},
            "field term is not between 0 and 46116860184273",
        ),
        ({"brokerName": ""}, "field brokerName is empty"),
        ({"brokerName": long}, "field brokerName has 513 characters, at most 512"),
        ({"address": long}, "field brokerAddr has 513 characters"),
        ({"httpAddr": long}, "httpAddr has 513 characters"),
        ({"members": ";".join(["h:1"] * 65)}, "it has 65 members, at most 64"),
        (
            {"heartbeatTimeoutMillis": str(NAMESERVER.expiry_ms_max + 1)},
            "field heartbeatTimeoutMillis is not",
        ),
    ):
        refused = await tool.ask(RequestCode.REGISTER_BROKER, broker_ext(**ext), table("T"))
        assert refused.code == 1, ext
        assert (refused.remark or "").startswith(remark), (ext, refused.remark)
    refused = await tool.ask(RequestCode.REGISTER_BROKER, broker_ext(), table(long))
    assert (refused.remark or "").startswith("the name of a topic has 513 characters")
    assert await tool.topics() == []


@in_virtual_time
async def test_key_values_have_limits(loop: VirtualLoop) -> None:
    await start(loop)
    tool = Tool(loop)

    async def put(key: str, value: str) -> tuple[int, str | None]:
        ext = {"namespace": "N", "key": key, "value": value}
        answer = await tool.ask(RequestCode.PUT_KV_CONFIG, ext)
        return answer.code, answer.remark

    large = "v" * (NAMESERVER.key_value_bytes_max // 6)
    codes = [(await put(f"k{number}", large))[0] for number in range(7)]
    assert codes == [0, 0, 0, 0, 0, 1, 1]
    _, remark = await put("k5", large)
    assert remark == "all key-value pairs would have 4194318 bytes, at most 4194304 are allowed"
    assert (await put("k0", "v"))[0] == 0  # in the place of a larger one
    assert (await put("k5", large))[0] == 0
    for number in range(6):
        await tool.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": f"k{number}"})
    assert (await put("k", "ä"))[0] == 0


def test_the_number_of_key_values_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(NAMESERVER, key_values_max=1)
    monkeypatch.setattr("broker.nameserver.keyvalues.NAMESERVER", few)

    @in_virtual_time
    async def scenario(loop: VirtualLoop) -> None:
        await start(loop)
        tool = Tool(loop)
        for namespace, value, code in (("A", "1", 0), ("B", "1", 1), ("A", "2", 0)):
            ext = {"namespace": namespace, "key": "k", "value": value}
            assert (await tool.ask(RequestCode.PUT_KV_CONFIG, ext)).code == code

    scenario()


def test_so_many_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(NAMESERVER, routes_kept_max=2)
    monkeypatch.setattr("broker.nameserver.server.NAMESERVER", few)
    topics = ("T", "U", "V", "W")

    @in_virtual_time
    async def scenario(loop: VirtualLoop) -> None:
        nameserver = await start(loop)
        tool = Tool(loop)
        await tool.register(table(*topics))
        for topic in topics * 2:
            answer = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            assert answer.code == 0
            assert len(nameserver._answers) <= 2

    scenario()


def test_numbers_of_queues_and_of_topics_have_a_limit() -> None:
    topic = {"readQueueNums": 2**31 - 1, "writeQueueNums": 4}
    body = orjson.dumps({"topicConfigTable": {"T": topic}})
    data = decode_topic_table(body, compressed=False).queues["T"]
    assert (data.read_queues, data.write_queues) == (NAMESERVER.queues_max, 4)
    negative = orjson.dumps({"topicConfigTable": {"T": topic | {"writeQueueNums": -1}}})
    with pytest.raises(FieldError, match="the topic T has -1 queues"):
        decode_topic_table(negative, compressed=False)
    many = orjson.dumps(
        {"topicConfigTable": {f"t{n}": {} for n in range(NAMESERVER.topics_max + 1)}}
    )
    with pytest.raises(FieldError, match="it has 150001 topics, at most 150000 are allowed"):
        decode_topic_table(many, compressed=False)
    lying = zlib.compress(pack(">i2sii", 2, b"{}", 2**31 - 1, 0))
    with pytest.raises(FieldError, match="it has 2147483647 topics"):
        decode_topic_table(lying, compressed=True)
