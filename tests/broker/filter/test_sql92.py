"""SQL92 filters: what expressions mean, which are refused, and what a pull brings by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.delivery.message_filter import selected
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus, PullLimits
from broker.filter.sql92_operations import (
    TEXT_SIZE,
    between,
    constant,
    negative,
    property_named,
)
from broker.filter.sql92_parser import parse_selector
from broker.filter.subscription import ExpressionError
from broker.limits import CONSUME
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.errors import CorruptRecordError
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import make_pending_message
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

DEPTH_MAX, LINKS_MAX = CONSUME.expression_depth_max, CONSUME.expression_links_max

PROPERTIES = {"a": "5", "price": "9.5", "city": "Kiel", "ok": "true", "bad": "x1", "e": ""}


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5",
        "a = '5'",
        "5 = a",
        "a=5 AND city='Kiel'",
        "a > 4 and a >= 5 and a < 6 and a <= 5",
        "a <> 6",
        "a > -1",
        "a > +4",
        "price > 9.0",
        "price = 9.5",
        "price > 9.4e0 AND price < .96E1",
        "a BETWEEN 5 AND 6",
        "a NOT BETWEEN 6 AND 9",
        "a NOT BETWEEN nothing AND 4",
        "NOT (a BETWEEN nothing AND 4)",
        "NOT (a BETWEEN 6 AND nothing)",
        "(a BETWEEN nothing AND 9) IS NULL",
        "(nothing NOT BETWEEN bad AND 9) IS NULL",
        "-(a BETWEEN 5 AND 6) IS NULL",
        "city IN ('Bonn', 'Kiel')",
        "city NOT IN ('Bonn')",
        "nothing IS NULL",
        "a IS NOT NULL",
        "a = 6 OR city = 'Kiel'",
        "nothing = 1 OR a = 5",
        "NOT (a = 6)",
        "(a = 5)",
        "ok = TRUE",
        "ok <> false",
        "TRUE",
        "TRUE AND a = 5",
        "city CONTAINS 'ie'",
        "city STARTSWITH 'Ki' AND city ENDSWITH 'el'",
        "city NOT CONTAINS 'x' AND city NOT STARTSWITH 'x' AND city NOT ENDSWITH 'x'",
        "a > price OR price > a",
        "a = 5L",
        "a = 5 -- the rest of the line\n AND city = 'Kiel'",
        "a /* of ** all */ = 5",
        "a = 5 OR bad > 3",
        "'it''s' = 'it''s'",
        "e = ''",
        "$x IS NULL AND _y$1 IS NULL",
        "a IS NULL = FALSE",
    ],
)
def test_an_expression_that_is_true_selects_the_message(expression: str) -> None:
    assert parse_selector(expression).matches(PROPERTIES)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 6",
        "a = 5.5",
        "city = 'kiel'",
        "CITY = 'Kiel'",
        "nothing = 1",
        "nothing <> 1",
        "NOT (nothing = 1)",
        "nothing > 1 OR nothing < 1",
        "nothing IN ('x')",
        "nothing NOT IN ('x')",
        "nothing NOT CONTAINS 'x'",
        "city CONTAINS ''",
        "a NOT BETWEEN nothing AND 6",
        "a BETWEEN bad AND 4 OR a = 5",
        "bad > 3",
        "bad > 3 OR a = 5",
        "bad = 1",
        "price > 9",
        "price > 9 AND price = 9",
        "a AND a = 5",
        "ok",
        "NOT ok = TRUE AND FALSE",
        "FALSE",
        "NULL",
        "-city = 1",
        "NOT a = 5",
    ],
)
def test_an_expression_that_is_false_or_unknown_or_meaningless_selects_nothing(
    expression: str,
) -> None:
    assert not parse_selector(expression).matches(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("", "character 1: it ends too early"),
        ("a = ", "character 5: it ends too early"),
        ("a = 5 b", "character 7: b does not belong there"),
        ("a ! 5", "character 3: '!' begins no known word"),
        ("a = 007", "character 6: 0 does not belong there"),
        ("a = 'x", 'character 5: "\'" begins no known word'),
        ("a = (5", "it ends too early"),
        ("a IN (1)", "1 does not belong there"),
        ("a IN ()", ") does not belong there"),
        ("a NOT 5", "5 does not belong there"),
        ("a IS 5", "5 does not belong there"),
        ("a LIKE 'x'", "LIKE does not belong there"),
        ("a > 'x'", "'x' cannot be ordered"),
        ("a < TRUE", "TRUE cannot be ordered"),
        ("a > 1 > 2", "(a > 1) cannot be ordered"),
        ("a = NULL", "NULL cannot be compared"),
        ("TRUE = 5", "TRUE cannot be compared with 5"),
        ("a BETWEEN 6 AND 5", "BETWEEN 6 AND 5 is never true"),
        ("a BETWEEN NULL AND 5", "NULL cannot be ordered"),
        ("5 IN ('x')", "IN needs a property, 5 is none"),
        ("'x' CONTAINS 'x'", "CONTAINS needs a property"),
        ("5", "5 is not a condition"),
        ("'x' AND a = 5", "'x' is not a condition"),
        ("a = 9223372036854775808", "greater than 9223372036854775807"),
        (
            "(" * (DEPTH_MAX + 1) + "a",
            f"nested more than {DEPTH_MAX} deep",
        ),
        ("- " * 1000 + "a", f"nested more than {DEPTH_MAX} deep"),
        ("a = 'x' OR " * 1000 + "a = 'x'", f"more than {LINKS_MAX} operations"),
        ("a = 'x' AND " * 1000 + "a = 'x'", f"more than {LINKS_MAX} operations"),
        ("a" + " <> TRUE" * 1000, f"more than {LINKS_MAX} operations"),
    ],
)
def test_an_expression_that_means_nothing_is_refused_with_its_place(
    expression: str, what: str
) -> None:
    with pytest.raises(ExpressionError) as refusal:
        parse_selector(expression)
    assert what in str(refusal.value)


def test_numbers_are_read_as_java_reads_them() -> None:
    wanted = parse_selector("a > 1.5")
    assert all(wanted.matches({"a": text}) for text in ("2", " 2.0 ", "2d", "2e0f", "NaN"))
    refused = ("1_000", "two", "0x2", "inf", "", "\uff12")
    assert not any(wanted.matches({"a": text}) for text in refused)
    whole = parse_selector("a > 1")
    assert not any(whole.matches({"a": text}) for text in ("2.0", " 2", "9" * 20, "9" * 5000))


SQL = {"expressionType": "SQL92"}


async def stocked(broker: SingleBroker, count: int) -> None:
    """Messages whose property ``n`` is their offset in queue 0 of the topic orders."""
    await broker.create_topic("orders", queues=1)
    for n in range(count):
        await broker.send("orders", 0, b"x" * 100, f"n\x01{n}\x02TAGS\x01t\x02")


async def test_a_pull_brings_the_messages_that_the_expression_selects(broker: SingleBroker) -> None:
    await stocked(broker, 10)
    answer = await broker.pull("orders", 0, 2, **SQL, subscription="n BETWEEN 1 AND 3 OR n = 7")
    assert [record.queue_offset for record in messages(answer)] == [2, 3, 7]
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.SUCCESS, "10")


async def test_a_pull_ends_with_as_many_as_it_may_bring(broker: SingleBroker) -> None:
    await stocked(broker, 10)
    wanted = SQL | {"subscription": "n > 2", "maxMsgNums": "2"}
    answer = await broker.pull("orders", 0, 0, **wanted)
    assert [record.queue_offset for record in messages(answer)] == [3, 4]
    assert answer.ext["nextBeginOffset"] == "5"
    answer = await broker.pull("orders", 0, 5, **wanted | {"maxMsgBytes": "10"})
    assert [record.queue_offset for record in messages(answer)] == [5]
    assert answer.ext["nextBeginOffset"] == "6"


async def test_a_pull_that_finds_nothing_goes_on_behind_what_it_has_seen(
    broker: SingleBroker,
) -> None:
    await stocked(broker, 3)
    answer = await broker.pull("orders", 0, 0, **SQL, subscription="n > 7")
    assert (answer.code, answer.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "3",
    )
    assert not answer.body


def test_a_record_that_contradicts_itself_is_never_taken_for_one_that_does_not_match() -> None:
    message = make_pending_message(
        "orders", b"x", b"n\x011\x02", born_timestamp=1, born_host=bytes(8)
    )
    parts = encode_batch(0, 1, bytes(8), [QueueRun("orders", 0, 0, [message])], b"")
    record = bytearray(decode_batch(b"".join(map(bytes, parts))).records)
    found = GetMessageResult(GetMessageStatus.FOUND, 1, 0, 1, (), 1)
    selector, limits = parse_selector("n = 1"), PullLimits(32, 1000)
    assert selected(selector, 0, found, [record], limits) == (found, [record])
    for size in (-1, 1000):
        record[84:88] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecordError):
            selected(selector, 0, found, [record], limits)


def test_a_list_has_as_many_texts_as_can_be_read_at_once() -> None:
    parse_selector("a IN (" + "'b'," * 2000 + "'c')")
    with pytest.raises(ExpressionError, match="more than 4096 words and signs"):
        parse_selector("a IN (" + "'b'," * 2100 + "'c')")


@pytest.mark.parametrize("links", [" OR a = 'x'", " AND a <> 'x'", " <> TRUE"])
def test_the_longest_expression_can_be_evaluated(links: str) -> None:
    assert isinstance(parse_selector("a = 'y'" + links * LINKS_MAX).matches({"a": "y"}), bool)


class Asked(dict[str, str]):
    """Properties that count how often one is looked up."""

    times = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.times += 1
        return super().get(name, default)


@pytest.mark.parametrize("word", ["BETWEEN", "NOT BETWEEN"])
def test_each_part_of_an_expression_is_evaluated_once_however_deep_it_is(word: str) -> None:
    """Twice at each of 31 levels would be two billion times."""
    levels = 12
    nested = "-(" * levels + "a" + f" {word} 1 AND 2)" * levels + " IS NULL"
    properties = Asked(a="1")
    assert parse_selector(nested).matches(properties)
    assert properties.times == 1


def test_the_text_of_a_part_for_errors_does_not_grow_with_its_depth() -> None:
    one, part = constant(1, "1"), property_named("a")
    for _ in range(12):
        part = negative(between(part, one, one))
    assert len(part.text) <= TEXT_SIZE


def test_the_deepest_expression_is_read_and_evaluated() -> None:
    levels = (DEPTH_MAX - 2) // 2
    deepest = "-(" * levels + "a" + " BETWEEN 1 AND 2)" * levels + " IS NULL"
    assert parse_selector(deepest).matches({"a": "1"})


async def test_the_expression_of_the_heartbeat_counts_where_a_pull_has_none(
    broker: SingleBroker,
) -> None:
    await stocked(broker, 5)
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"readers","subscriptionDataSet":'
        b'[{"topic":"orders","subString":"n = 4","expressionType":"SQL92","subVersion":1}]}]}'
    )
    assert (await broker.ask(RequestCode.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS
    answer = await broker.pull("orders", 0, 0, sysFlag="0")
    assert [record.queue_offset for record in messages(answer)] == [4]


async def test_an_operator_may_forbid_filters_by_property(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, property_filter=False) as broker:
        await stocked(broker, 1)
        answer = await broker.pull("orders", 0, 0, **SQL, subscription="n = 0")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == ("The broker does not support consumer to filter message by SQL92")
