"""Asks whether messages without an acknowledgement are stored.

A leader serves only after it has applied everything that earlier leaders committed, and a batch is
one log entry. So when the connection to a leader broke, its successor knows whether the messages of
the last request are stored: all of them, or none. If the leader is still the same, the client first
sends a query that the leader answers only after everything committed before it is applied. A
request whose write is still in progress is not found then; the leader recognises the retry itself
(``broker/ingest/deduplication.py``). Asking before a retry prevents that messages are stored twice.
The index of Apache's brokers lags behind, and their answers do not wait, so there messages may
still be stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from broker.client.errors import BadAnswerError, check_success
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.errors import StoreError
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord, iter_records

INT64_MAX = 2**63 - 1
MATCHES_MAX = 32


APPLIED_SECONDS_FIRST = 0.1
APPLIED_SECONDS_MAX = 0.8
"""How long a leader may take for earlier requests; the time doubles with each try. Then the route
is looked up again, because a deposed leader does not answer."""


class StoredLocation(NamedTuple):
    """Where the messages are stored; ``message_ids`` has the ids of all of them, or only the
    first."""

    queue_id: int
    queue_offset: int
    message_ids: list[str]


async def until_applied(
    remoting: RemotingClient, address: str, topic: str, group: str, *, seconds: float
) -> None:
    """Returns once the leader has applied everything that was committed when this request came. It
    does not wait for writes that are in progress.

    It queries an offset (code 14), because leaders answer that by a linearizable read. Raises a
    :class:`~broker.remoting.protocol.errors.CallError`.
    """
    await remoting.invoke(
        address,
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": group, "topic": topic, "queueId": "0"},
        timeout=seconds,
    )


async def find_stored(
    remoting: RemotingClient,
    address: str,
    topic: str,
    first_key: str,
    *,
    record_sizes: Sequence[int],
    seconds: float,
) -> StoredLocation | None:
    """Looks up the request whose first message has the unique key ``first_key``; None if it is not
    stored.

    ``record_sizes``: the sizes of the records that the broker would make of the messages. Raises a
    :class:`~broker.remoting.protocol.errors.CallError` or
    :class:`~broker.client.errors.ClientError`.
    """
    answer = await remoting.invoke(
        address,
        RequestCode.QUERY_MESSAGE,
        {
            "topic": topic,
            "key": first_key,
            "maxNum": str(MATCHES_MAX),
            "beginTimestamp": "0",
            "endTimestamp": str(INT64_MAX),
            "_UNIQUE_KEY_QUERY": "true",
        },
        timeout=seconds,
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    check_success(address, answer)
    wanted = first_key.encode()
    try:
        for record in iter_records(answer.body):
            # The index has only hashes: other keys may have the same hash.
            if record.topic == topic and find_property(record.properties, UNIQUE_KEY) == wanted:
                return StoredLocation(
                    record.queue_id, record.queue_offset, _message_ids(record, record_sizes)
                )
    except StoreError as error:
        raise BadAnswerError(address, f"the answer to a query cannot be read: {error}") from None
    return None


def _message_ids(first: MessageRecord, sizes: Sequence[int]) -> list[str]:
    """The ids of all messages. The records of a request are consecutive, if the broker added
    nothing to them."""
    if first.size != sizes[0]:
        sizes = sizes[:1]
    host = first.store_host.hex().upper()
    positions = accumulate(sizes[:-1], initial=first.position)
    return [f"{host}{position:016X}" for position in positions]
