"""Look-ups by key, position and time, compared with the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from simulator.engine.violation import Violation
from simulator.faults.injector import FaultPlan
from simulator.hosts.host import Host
from simulator.invariants.broker.derived_files import DerivedFilesSound
from simulator.invariants.broker.message_lookup import Known, MessageLookups
from simulator.worlds.registry import LOOKUPS, Run
from store.log.entry import EntryKind, build_entry
from store.message.batch import QueueRun as LogRun
from store.message.batch import decode_batch, encode_batch
from store.message.properties import encode_properties
from store.message.record import decode_record, make_pending_message

HOST = bytes(8)
ADDRESS = "a:1"


@pytest.mark.minutes
def test_look_ups_give_what_the_log_has() -> None:
    """Repeat it with ``Run(1, world=LOOKUPS, seconds=8.0, plan=plan).play(print)``."""
    plan = FaultPlan.of(("crash", "expiry", "partition"))
    outcome = Run(1, world=LOOKUPS, seconds=8.0, plan=plan).play()
    assert outcome.violation is None
    for how in ("key", "position", "time"):
        assert outcome.marks[f"message found by {how}"]


class Log:
    """Three messages with the keys ``a``, ``b`` and ``a b``, stored at 1, 2 and 3 ms."""

    def __init__(self) -> None:
        self.check = MessageLookups(["orders"])
        host = cast("Host", SimpleNamespace(addresses=("", ADDRESS, "")))
        position = 0
        for index, keys in enumerate(("a", "b", "a b")):
            staged = make_pending_message(
                "orders",
                b"body",
                encode_properties({"KEYS": keys, "UNIQ_KEY": f"K{index}"}),
                born_timestamp=1,
                born_host=HOST,
            )
            runs = [LogRun("orders", 0, index, [staged])]
            body = encode_batch(position, index + 1, HOST, runs, b"")
            entry = build_entry(EntryKind.DATA, index, 1, position, 0, body)
            assert decode_record(decode_batch(entry.body).records).queue_offset == index
            self.check.applies(host, entry, b"")
            position += 1_000
        self.known = self.check.queues["orders", 0]

    def find(self, key: str, *found: Known, applied: int = 2) -> None:
        """A query is answered with these."""
        records = [(each.record, each.data) for each in found]
        self.check.found_by_key("orders", key, applied, records)


def test_a_query_by_key_gives_all_that_the_broker_had_applied() -> None:
    log = Log()
    first, _second, third = log.known
    assert log.check.applied(ADDRESS) == 2
    log.find("a", third, first)
    log.find("a", first, applied=1)
    log.find("K1", log.known[1])
    with pytest.raises(Violation, match="does not give"):
        log.find("a", first)
    log.check._expired_position = 2_500
    log.find("a")


def test_a_query_by_key_gives_nothing_else() -> None:
    log = Log()
    first, second, third = log.known
    with pytest.raises(Violation, match="without that key"):
        log.find("a", first, second, third)
    with pytest.raises(Violation, match="gives a message twice"):
        log.find("a", first, first, third)
    with pytest.raises(Violation, match="which the log does not have"):
        log.find("a", first._replace(data=b"other"), third)


def test_another_message_at_a_position_or_none_is_found() -> None:
    log = Log()
    first, second, _third = log.known
    position = second.record.position
    log.check.found_at(position, 2, second.data)
    log.check.found_at(position, 0, None)
    with pytest.raises(Violation, match="nothing is found at position"):
        log.check.found_at(position, 2, None)
    with pytest.raises(Violation, match="another message is found"):
        log.check.found_at(position, 2, first.data)


def test_a_search_by_time_that_is_one_off_is_found() -> None:
    log = Log()
    log.check.found_by_time("orders", 0, 2, 2, 1)
    log.check.found_by_time("orders", 0, 4, 2, 3)
    with pytest.raises(Violation, match="leaves out"):
        log.check.found_by_time("orders", 0, 2, 2, 2)
    with pytest.raises(Violation, match="which is older"):
        log.check.found_by_time("orders", 0, 2, 2, 0)
    with pytest.raises(Violation, match="is beyond the end 3"):
        log.check.found_by_time("orders", 0, 4, 2, 4)


def test_a_host_that_does_not_run_is_not_read() -> None:
    DerivedFilesSound().healed(cast("Host", SimpleNamespace(node=None)))
