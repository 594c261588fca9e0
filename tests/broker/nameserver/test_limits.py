"""What a NameServer keeps of what anybody says has limits."""

from __future__ import annotations

import asyncio
import zlib
from struct import pack

import orjson
import pytest

from broker.limits import NAMESERVER
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import FieldError, TooManyError
from broker.remoting.protocol.register_broker_body import decode_topic_table
from tests.broker.nameserver.route_tables import C0, N0, Tables
from tests.broker.nameserver.tool import Tool, broker_ext, start, table
from tests.support.virtual_network import NetworkedLoop, turns


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"processes_max": 2}, "2 brokers are registered, at most 2 are allowed"),
        ({"connection_processes_max": 2}, "2 brokers are registered over this connection, at most"),
        ({"all_topics_max": 2}, "all brokers would have 3 topics, at most 2 are allowed"),
    ],
)
def test_there_is_room_for_so_many(
    limits: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.nameserver.route_table.NAMESERVER", NAMESERVER._replace(**limits))
    tables = Tables()
    for _ in range(2):
        for number in (0, 1):
            tables.join(0, f"h{number}:1", name=f"b{number}", channel=C0)
    with pytest.raises(TooManyError, match=why):
        tables.join(0, "h2:1", name="b2", channel=C0)
    tables.unregister("b1", "h1:1", C0)
    tables.join(0, "h2:1", name="b2", channel=C0)


@pytest.mark.parametrize("term", [None, 1])
def test_topics_are_counted_whether_a_table_is_added_or_replaces_another(
    term: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = NAMESERVER._replace(all_topics_max=3)
    monkeypatch.setattr("broker.nameserver.route_table.NAMESERVER", few)
    tables = Tables()
    tables.join(0, N0, "A", "B", term=term, version=1)
    if term is None:
        with pytest.raises(TooManyError, match="all brokers would have 4 topics, at most 3"):
            tables.join(0, N0, "C", "D", term=term, version=2)
    else:
        tables.join(0, N0, "C", "D", term=term, version=2)
    tables.join(0, N0, "B", "D", term=term, version=3)


def test_gone_names_and_members_are_remembered_up_to_a_limit() -> None:
    tables = Tables()
    for number in range(NAMESERVER.departed_brokers_max + 5):
        tables.join(0, N0, name=f"b{number}")
        tables.channel_closed(C0)
    gone = tables.gone.as_json()
    assert len(gone) == NAMESERVER.departed_brokers_max
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
    tables._live, tables._queues, tables._names = seen  # type: ignore[assignment]  # dicts that count steps
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


async def test_brokers_of_a_closed_connection_go_one_in_a_turn(loop: NetworkedLoop) -> None:
    nameserver = await start(loop)
    broker, tool = Tool(loop), Tool(loop)
    for number in range(64):
        await broker.register(table("T"), address=f"h{number}:1", brokerName=f"b{number}")
    refused = await broker.ask(
        RequestCode.REGISTER_BROKER, broker_ext("h64:1", brokerName="b64"), table("T")
    )
    assert refused.remark == (
        "64 brokers are registered over this connection, at most 64 are allowed"
    )
    await broker.close()
    await turns(3)
    left = len(nameserver.routes.clusters()["DefaultCluster"])
    assert 50 < left < 64
    await asyncio.sleep(1)
    assert await tool.topics() == []
    assert nameserver._refused == {}


async def test_of_a_closed_connection_no_refused_claim_is_kept(loop: NetworkedLoop) -> None:
    nameserver = await start(loop)
    broker, stranger = Tool(loop), Tool(loop)
    await broker.register(table("T"), term="5")
    refused = await stranger.ask(
        RequestCode.REGISTER_BROKER, broker_ext("h1:1", term="4"), table("T")
    )
    assert refused.remark == "broker-a: a leader of term 5 is known, not 4"
    claims = nameserver.routes._claims._contested_claims
    assert len(claims._refused) == 1
    await stranger.close()
    await turns(5)
    assert claims._refused == {}
    assert nameserver._refused == {}


async def test_brokers_that_go_and_were_silent_before_stop_no_look(loop: NetworkedLoop) -> None:
    nameserver = await start(loop)
    gone, silent = Tool(loop), Tool(loop)
    for tool, names in ((gone, range(64)), (silent, range(64, 65))):
        for number in names:
            await tool.register(
                table("T"),
                address=f"h{number}:1",
                brokerName=f"b{number}",
                heartbeatTimeoutMillis="1",
            )
    await asyncio.sleep(0.01)
    await gone.close()
    await turns(3)
    assert 50 < len(nameserver.routes.clusters()["DefaultCluster"]) < 65
    nameserver._scan()
    assert nameserver.routes.clusters() == {}
    await turns(3)
    assert nameserver.server.connections == []


async def test_a_registration_that_cannot_be_is_refused(loop: NetworkedLoop) -> None:
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


async def test_key_values_have_limits(loop: NetworkedLoop) -> None:
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


async def test_the_number_of_key_values_has_a_limit(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = NAMESERVER._replace(key_values_max=1)
    monkeypatch.setattr("broker.nameserver.kv_config.NAMESERVER", few)

    await start(loop)
    tool = Tool(loop)
    for namespace, value, code in (("A", "1", 0), ("B", "1", 1), ("A", "2", 0)):
        ext = {"namespace": namespace, "key": "k", "value": value}
        assert (await tool.ask(RequestCode.PUT_KV_CONFIG, ext)).code == code


async def test_so_many_answers_are_kept(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = NAMESERVER._replace(routes_kept_max=2)
    monkeypatch.setattr("broker.nameserver.server.NAMESERVER", few)
    topics = ("T", "U", "V", "W")

    nameserver = await start(loop)
    tool = Tool(loop)
    await tool.register(table(*topics))
    for topic in topics * 2:
        answer = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert answer.code == 0
        assert len(nameserver._answers) <= 2


async def test_so_many_bytes_of_answers_are_kept(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameserver = await start(loop)
    tool = Tool(loop)
    await tool.register(table("T", "U", "V", "W"))
    answer = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    few = NAMESERVER._replace(routes_kept_bytes_max=2 * len(answer.body))
    monkeypatch.setattr("broker.nameserver.server.NAMESERVER", few)
    for topic in ("U", "V", "W", "T"):
        assert (await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == 0
        assert sum(map(len, nameserver._answers.values())) <= 2 * len(answer.body)
    none = NAMESERVER._replace(routes_kept_bytes_max=len(answer.body) - 1)
    monkeypatch.setattr("broker.nameserver.server.NAMESERVER", none)
    assert (await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"})).code == 0
    assert not nameserver._answers


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
