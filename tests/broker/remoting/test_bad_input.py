"""Whatever a client sends: it gets an answer, its connection lives, and nothing is lost."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import IllegalMessageError
from broker.filter.subscription import ExpressionError, tag_codes
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.message_properties import storable_properties
from broker.ingest.property_templates import MessageBuilder, origin
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.errors import FatalDiskError
from tests.broker.single_broker import (
    SingleBroker,
    batched,
    messages,
    pull_ext,
    running_broker,
    send_ext,
)
from tests.support.search_effort import searching
from tests.support.virtual_network import NetworkedLoop, run_in_virtual_time

RESPONSE_CODES = {int(code) for code in ResponseCode}

values: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 5).map(str),
    st.sampled_from(["", "orders", "TBW102", "readers", "true", "A || B", "SQL92", "9" * 30]),
    st.text(max_size=8),
)
field_names = st.sampled_from(
    sorted({*send_ext("t", 0), *pull_ext("t", 0, 0), "m", "commitOffset", "offset", "key"})
)
usual_fields: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just(send_ext("orders", 0)),
    st.just(pull_ext("orders", 0, 0)),
    st.just({"topic": "orders", "key": "k", "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 9}),
    st.just({"topic": "new", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}),
)
fields = st.builds(
    lambda usual, changed: usual | changed,
    usual_fields,
    st.dictionaries(field_names, values, max_size=3),
)
json_bodies = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["clientID", "consumerDataSet", "groupName", "subscriptionDataSet"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
).map(orjson.dumps)
bodies = st.one_of(st.binary(max_size=64), json_bodies, st.binary(max_size=9).map(batched))
# Retention's, deletion's and the unknown code's requests are as good as any.
codes = st.sampled_from([code for code in RequestCode if code < 400])


@searching(25)
@given(st.lists(st.tuples(codes, fields, bodies), max_size=12))
def test_any_request_is_answered_and_what_is_stored_stays(
    requests: list[tuple[int, dict[str, Any], bytes]],
) -> None:
    async def asked(broker: SingleBroker) -> None:
        await broker.create_topic("kept")
        await broker.send("kept", 0, b"before")
        for code, ext, body in requests:
            kept_ext = {name: value for name, value in ext.items() if value != "kept"}
            answer = await broker.ask(code, kept_ext, body, seconds=200)
            assert answer.code in RESPONSE_CODES
        assert len(broker.server.connections) == 1
        await broker.send("kept", 0, b"after")
        found = messages(await broker.pull("kept", 0, 0))
        assert [record.body for record in found] == [b"before", b"after"]

    async def scenario(loop: NetworkedLoop) -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with running_broker(loop, Path(directory)) as broker:
                await asked(broker)

    run_in_virtual_time(scenario)


async def test_every_code_that_is_handled_refuses_an_empty_request_in_words(
    broker: SingleBroker,
) -> None:
    for code in broker.broker.handlers:
        answer = await broker.ask(code)
        assert answer.code == ResponseCode.SUCCESS or answer.remark, code


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    try:
        found = decode_batch_body(MessageBuilder("east"), origin("t", 0, 0, bytes(8), 0), data)
    except IllegalMessageError:
        return
    assert b"".join(batched(bytes(each.body), each.properties) for each in found) == data or any(
        each.flag for each in found
    )


@given(st.lists(st.tuples(st.sampled_from([b"A", b"WAIT", b"AWAIT", b"WAITS"]), st.binary())))
def test_of_all_properties_only_wait_is_taken_out(pairs: list[tuple[bytes, bytes]]) -> None:
    clean = [(name, value.translate(None, b"\x01\x02")) for name, value in pairs]
    written = b"".join(name + b"\x01" + value + b"\x02" for name, value in clean)
    kept = b"".join(name + b"\x01" + value + b"\x02" for name, value in clean if name != b"WAIT")
    assert storable_properties(written) == kept


@given(st.text())
def test_any_text_is_a_subscription_or_refused(expression: str) -> None:
    try:
        codes = tag_codes(expression)
    except ExpressionError:
        assert not expression.replace("||", "").strip()
        return
    assert codes is None or all(-(2**31) <= code < 2**31 for code in codes)


async def test_when_the_node_fails_who_waits_is_told_that_the_outcome_is_unknown(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    broker.log_executor.hold()
    waiting = asyncio.ensure_future(broker.send("orders", 0, b"x"))
    await asyncio.sleep(0.1)
    broker.broker.context.node.fail(FatalDiskError("the disk is gone"))
    answer = await waiting
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "ended before entry" in (answer.remark or "")
    assert [str(failure) for failure in broker.failures] == ["the disk is gone"]
    broker.failures.clear()


async def test_a_disk_without_room_refuses_messages_and_serves_readers(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"kept")
    broker.broker.context.node.store.has_room = lambda size: False  # type: ignore[method-assign]  # a double
    answer = await broker.send("orders", 0, b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the disk has no room" in (answer.remark or "")
    assert len(messages(await broker.pull("orders", 0, 0))) == 1
