"""Counters by topic and group: 315 (``VIEW_BROKER_STATS_DATA``).

The names are those of RocketMQ's ``BrokerStatsManager``. A key is a topic, ``topic@group``, or the
cluster. The numbers count from the time at which this process became leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from broker.context import BrokerContext
from broker.metrics.topic_metrics import DAY, HOUR, MINUTE, Meter, Span, TopicMetrics, WindowSums
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json

K = TypeVar("K")


class _StatsItem(NamedTuple):
    """The counters of an item, and whether it counts bytes."""

    meters: Callable[[TopicMetrics, str], Iterable[Meter]]
    of_bytes: bool = False


def _put(meters: TopicMetrics, key: str) -> Iterable[Meter]:
    return _found(meters.put, key)


def _got(meters: TopicMetrics, key: str) -> Iterable[Meter]:
    return _found(meters.got, _topic_and_group(key))


def _sent_back(meters: TopicMetrics, key: str) -> Iterable[Meter]:
    return _found(meters.sent_back, _topic_and_group(key))


STATS_ITEMS: Mapping[str, _StatsItem] = {
    "TOPIC_PUT_NUMS": _StatsItem(_put),
    "TOPIC_PUT_SIZE": _StatsItem(_put, of_bytes=True),
    "GROUP_GET_NUMS": _StatsItem(_got),
    "GROUP_GET_SIZE": _StatsItem(_got, of_bytes=True),
    "SNDBCK_PUT_NUMS": _StatsItem(_sent_back),
    "BROKER_PUT_NUMS": _StatsItem(lambda meters, _cluster: meters.put.values()),
    "BROKER_GET_NUMS": _StatsItem(lambda meters, _cluster: meters.got.values()),
}


class ViewBrokerStatsProcessor:
    """Handles 315."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def view(self, connection: Connection, request: Frame) -> None:
        """Totals, rates per second, and means per step, of the last minute, hour and day.

        A name without numbers is refused with 1, as RocketMQ does.
        """
        name, key = ext_str(request, "statsName"), ext_str(request, "statsKey")
        meters = self._context.rates.topic_metrics
        figure = STATS_ITEMS.get(name)
        if figure is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{name}> not exist; there are {', '.join(STATS_ITEMS)}",
            )
        if name.startswith("BROKER_") and key != self._context.config.cluster:
            raise _no_such_stats(name, key)
        chosen = list(figure.meters(meters, key))
        if not chosen:
            raise _no_such_stats(name, key)
        passed = meters.passed()

        def item(span: Span) -> dict[str, float]:
            return _item([each.sums(span, passed) for each in chosen], of_bytes=figure.of_bytes)

        body = {"statsMinute": item(MINUTE), "statsHour": item(HOUR), "statsDay": item(DAY)}
        connection.respond(request, body=(encode_json(body),))


def _item(sums: list[WindowSums], *, of_bytes: bool) -> dict[str, float]:
    total = sum(each.bytes if of_bytes else each.messages for each in sums)
    steps = sum(each.steps for each in sums)
    seconds = sums[0].seconds
    return {
        "sum": total,
        "tps": total / seconds if seconds > 0 else 0.0,
        "avgpt": total / steps if steps else 0.0,
    }


def _found(meters: Mapping[K, Meter], key: K) -> Iterable[Meter]:
    meter = meters.get(key)
    return () if meter is None else (meter,)


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _no_such_stats(name: str, key: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
