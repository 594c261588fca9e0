"""The bodies of the trace topic, as Java clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.admin.message_trace import TraceKind, decode_trace, trace_of

ID = "7F0000010A5C2B1D4E8F000001020304"


def body(*events: tuple[str, ...]) -> bytes:
    return "".join("\x01".join(event) + "\x02" for event in events).encode()


SENT = (
    "Pub", "1700000000000", "DefaultRegion", "makers", "orders", ID, "red", "k1 k2",
    "10.0.0.1:10911", "512", "7", "0", "0A000001", "true",
)  # fmt: skip
BEGUN = ("SubBefore", "1700000000100", "DefaultRegion", "readers", "R1", ID, "2", "k1 k2")
ENDED = ("SubAfter", "R1", ID, "30", "false", "k1 k2", "4", "1700000000130", "readers")
CLOSED = (
    "EndTransaction", "1700000000050", "DefaultRegion", "makers", "orders", ID, "", "",
    "10.0.0.1:10911", "2", "T1", "COMMIT_MESSAGE", "false",
)  # fmt: skip


def test_events_say_what_clients_did() -> None:
    sent, begun, ended, closed = decode_trace(body(SENT, BEGUN, ENDED, CLOSED))
    assert sent.kind is TraceKind.SENT
    assert (sent.topic, sent.group, sent.tags, sent.keys) == ("orders", "makers", "red", "k1 k2")
    assert (sent.time_ms, sent.cost_ms, sent.success) == (1_700_000_000_000, 7, True)
    assert sent.broker == "10.0.0.1:10911"
    assert (begun.group, begun.retries, begun.time_ms) == ("readers", 2, 1_700_000_000_100)
    assert (ended.success, ended.outcome, ended.cost_ms) == (False, "failed", 30)
    assert (closed.outcome, closed.transaction) == ("COMMIT_MESSAGE", "T1")


def test_the_trace_of_a_message_is_in_the_order_of_time_and_has_no_other_message() -> None:
    other = tuple("A" * 32 if field == ID else field for field in SENT)
    found = trace_of(ID.lower(), [body(ENDED), body(BEGUN, other), body(CLOSED), body(SENT)])
    assert [event.kind.value for event in found] == [
        "Pub",
        "EndTransaction",
        "SubBefore",
        "SubAfter",
    ]


def test_an_end_without_a_time_follows_its_beginning() -> None:
    """As clients before 4.7 write it."""
    found = trace_of(ID, [body(ENDED[:6]), body(BEGUN)])
    assert [event.kind for event in found] == [TraceKind.CONSUMING, TraceKind.CONSUMED]


def test_fields_of_later_clients_and_kinds_that_are_not_known_are_left_out() -> None:
    assert decode_trace(body((*SENT, "10.0.0.9"), ("Recall", "x"))) == decode_trace(body(SENT))


def test_an_event_without_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="trace event Pub names no message"):
        decode_trace(body(("Pub", "1")))


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_says_nothing(garbage: bytes) -> None:
    try:
        decode_trace(garbage)
    except ValueError:
        return


@given(st.lists(st.sampled_from([SENT, BEGUN, ENDED, CLOSED]), max_size=8))
def test_each_event_is_decoded_once(events: list[tuple[str, ...]]) -> None:
    assert [event.kind.value for event in decode_trace(body(*events))] == [e[0] for e in events]
