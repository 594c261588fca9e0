"""Quotas: how they are written, what a bucket lets through, and who waits for whom."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits import QUOTAS, QuotaLimits
from broker.quotas import throttle as module
from broker.quotas.quota import Entity, Quota, QuotaError, parse_entity, parse_quota
from broker.quotas.throttle import NOBODY, Caller, Throttle
from broker.quotas.token_bucket import BURST_SECONDS, DEBT_SECONDS, TokenBucket

WAIT = QUOTAS.wait_seconds_max
RATES = st.integers(0, 1 << 50)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def throttle_with(clock: Clock, **quotas: Quota) -> Throttle:
    throttle = Throttle(clock)
    for name, quota in quotas.items():
        throttle.put(Entity("topic", name), quota)
    return throttle


@given(st.builds(Quota, RATES, RATES, RATES, RATES))
def test_a_quota_is_read_as_it_is_written(quota: Quota) -> None:
    assert parse_quota(str(quota)) == quota


@pytest.mark.parametrize("text", ["produceBytes", "bytes=1", "produceBytes=-1", "produceBytes=1e3"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(QuotaError):
        parse_quota(text)


def test_the_name_of_an_entity_may_have_points() -> None:
    assert parse_entity("quota.client.10.0.0.1@77#5") == Entity("client", "10.0.0.1@77#5")
    for wrong in ("quota.user.a", "quota.topic", "quota.topic.", "quota.topic.a b"):
        with pytest.raises(QuotaError):
            parse_entity(wrong)


@given(st.integers(1, 1000), st.lists(st.tuples(st.floats(0, 2), st.integers(1, 500))))
def test_who_waits_off_each_debt_gets_no_more_than_the_rate_and_one_burst(
    rate: int, takes: list[tuple[float, int]]
) -> None:
    bucket, began = TokenBucket(rate), 50.0
    now, taken = began, 0
    for pause, units in takes:
        if units > rate * DEBT_SECONDS:
            continue
        now += pause
        taken += units
        now += bucket.take(units, now)
        assert taken <= rate * (now - began + BURST_SECONDS) + 1e-3
    assert bucket.debt(now) == pytest.approx(0, abs=1e-6)


def test_a_burst_is_free_and_a_giant_is_in_debt_for_no_longer_than_allowed() -> None:
    bucket = TokenBucket(100)
    assert bucket.take(100, 5.0) == 0
    assert bucket.take(50, 5.0) == pytest.approx(0.5)
    assert bucket.take(1 << 40, 5.0) == pytest.approx(DEBT_SECONDS)


def test_only_who_is_beyond_the_quota_is_in_debt_and_for_no_longer_than_allowed() -> None:
    clock = Clock()
    throttle = throttle_with(clock, slow=Quota(produce_bytes=1000), fast=Quota(produce_messages=9))
    assert throttle.produced(NOBODY, "slow", 1, 1000) == 0
    assert throttle.produced(NOBODY, "slow", 1, 500) == pytest.approx(0.5)
    assert throttle.produced(NOBODY, "slow", 1, 1_000_000) == DEBT_SECONDS
    assert throttle.produced(NOBODY, "fast", 1, 1_000_000) == 0
    assert throttle.produced(NOBODY, "other", 1, 1_000_000) == 0
    waited = throttle.throttled_seconds
    assert waited == {Entity("topic", "slow"): pytest.approx(0.5 + WAIT)}


def test_a_reader_waits_for_what_it_was_given_before() -> None:
    clock = Clock()
    throttle = throttle_with(clock, t=Quota(consume_messages=10))
    assert throttle.consumes(NOBODY, "t") == 0
    throttle.consumed(NOBODY, "t", 35, 1)
    assert throttle.consumes(NOBODY, "t") == WAIT
    clock.now += WAIT
    assert throttle.consumes(NOBODY, "t") == pytest.approx(0.5)
    clock.now += 0.5
    assert throttle.consumes(NOBODY, "t") == 0
    assert throttle.produced(NOBODY, "t", 1000, 1) == 0


def test_each_without_a_quota_of_its_own_has_that_of_all() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    throttle.put(Entity("client", "*"), Quota(produce_messages=10))
    throttle.put(Entity("client", "vip"), Quota(produce_messages=1000))
    throttle.put(Entity("account", "both"), Quota(produce_messages=1))
    for name in ("a", "b"):
        assert throttle.produced(Caller(client_id=name), "t", 10, 1) == 0
    assert throttle.produced(Caller(client_id="a"), "t", 1, 1) == pytest.approx(0.1)
    assert throttle.produced(Caller(client_id="vip"), "t", 1000, 1) == 0
    assert throttle.produced(NOBODY, "t", 1000, 1) == 0
    assert throttle.produced(Caller("both", "vip"), "t", 2, 1) == pytest.approx(1)
    assert {*throttle.throttled_seconds} == {
        Entity("client", "*"),
        Entity("client", "vip"),
        Entity("account", "both"),
    }


def test_without_any_quota_it_is_not_asked() -> None:
    throttle = throttle_with(Clock(), t=Quota(produce_messages=1))
    assert throttle.active is throttle
    throttle.produced(NOBODY, "t", 100, 1)
    throttle.put(Entity("topic", "t"), Quota(produce_messages=2))
    assert throttle.produced(NOBODY, "t", 1, 1) == 0  # another quota, another bucket
    throttle.put(Entity("topic", "t"), Quota())
    assert throttle.active is None


def test_no_more_entities_are_known_than_allowed_and_idle_ones_go_first() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    throttle.put(Entity("client", "*"), Quota(produce_messages=10))
    with patch.object(module, "QUOTAS", QuotaLimits(buckets_max=4)):
        throttle.produced(Caller(client_id="busy"), "t", 500, 1)
        for number in range(20):
            clock.now += 0.01
            throttle.produced(Caller(client_id=f"c{number}"), "t", 1, 1)
            assert len(throttle._buckets) <= 4
    idle = Throttle(clock)
    idle.put(Entity("client", "*"), Quota(produce_messages=10))
    with patch.object(module, "QUOTAS", QuotaLimits(buckets_max=2)):
        idle.produced(Caller(client_id="busy"), "t", 500, 1)
        for number in range(5):
            clock.now += 1
            idle.produced(Caller(client_id=f"c{number}"), "t", 1, 1)
        assert Entity("client", "busy") in idle._buckets


@pytest.mark.parametrize("pause", [0.01, 0.2], ids=["all at work", "at rest before the next"])
def test_a_flood_of_client_ids_forgives_no_debt_and_is_seldom_looked_through(pause: float) -> None:
    clock = Clock()
    throttle = throttle_with(clock, slow=Quota(produce_messages=10))
    throttle.put(Entity("client", "*"), Quota(produce_messages=10))
    throttle.produced(NOBODY, "slow", 300, 1)
    sizes = []
    with patch.object(module, "QUOTAS", QuotaLimits(buckets_max=8)):
        for number in range(100):
            clock.now += pause
            throttle.produced(Caller(client_id=f"c{number}"), "other", 1, 1)
            sizes.append(len(throttle._buckets))
    assert throttle.produced(NOBODY, "slow", 1, 1) > 0
    assert sizes[7:12] == [5, 6, 7, 8, 5]


def test_to_ask_whether_somebody_owes_keeps_nothing_of_names_that_may_be_any_text() -> None:
    throttle = Throttle(Clock())
    for entity_type in ("topic", "client"):
        throttle.put(Entity(entity_type, "*"), Quota(produce_messages=10))
    for number in range(3):
        assert not throttle.owes(Caller(client_id=f"c{number}"), "x" * 100 + str(number))
    assert not throttle._buckets
    throttle.produced(NOBODY, "t", 11, 1)
    assert throttle.owes(NOBODY, "t")
    assert not throttle.owes(NOBODY, "other")


@pytest.mark.parametrize(("quota", "waits"), [("consumeBytes=1", True), ("produceBytes=1", False)])
def test_only_a_quota_for_what_is_received_lets_receives_wait_for_each_other(
    quota: str, waits: bool
) -> None:
    throttle = throttle_with(Clock(), orders=parse_quota(quota))

    async def enters() -> bool:
        async with throttle.turn(Caller("", "a"), "orders"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01), throttle.turn(Caller("", "b"), "orders"):
                    return True
        return False

    assert asyncio.run(enters()) is not waits
