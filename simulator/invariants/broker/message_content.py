"""The fields of a message stay the same when it is sent, stored and delivered.

Body, flag, tags, keys, properties and born time of each committed record are those that its client
sent. The hash in its ConsumeQueue row is that of its tags, Java's ``String.hashCode``, which this
check computes by itself. A consumer gets the record as the log has it, field by field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from socket import inet_ntoa
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import BatchInvariant, messages_of
from simulator.workload.history import Listener, Place, Sent, number_of
from simulator.workload.java_hash import java_hash
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host

OWN_PROPERTIES = frozenset(("UNIQ_KEY", "WAIT", "TAGS", "KEYS"))
"""The properties of a plain message: those that clients make of its fields, or add to each."""


class MessageContentKept(BatchInvariant, Listener):
    """Follows the messages of some topics.

    ``more_properties``: what else clients or brokers add there.
    """

    def __init__(
        self,
        topics: Sequence[str],
        more_properties: Collection[str] = (),
        ips: Mapping[str, str] | None = None,
    ) -> None:
        """``ips``: the addresses of clients by name. Their messages have these born hosts."""
        self._topics = topics
        self._ips = ips or {}
        self._added = OWN_PROPERTIES.union(more_properties)
        self._sent: dict[int, Sent] = {}
        self._records: dict[Place, MessageRecord] = {}

    def sent(self, sent: Sent) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        self._sent[sent.number] = sent

    def committed_batch(self, _host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for message in messages_of(entry, batch, self._topics):
            record = message.record
            self._check(message.place, record, message.tags_code)
            self._records[message.place] = record

    def _check(self, place: Place, record: MessageRecord, code: int) -> None:
        sent = self._sent.get(number_of(record.body))
        if sent is None or sent.content is None:
            raise Violation(f"{place} holds message {number_of(record.body)}, which nobody sent")
        content, properties = sent.content, record.property_map
        born_at = inet_ntoa(record.born_host[:4])
        fields = {
            "body": (sent.body, record.body),
            "flag": (content.flag, record.flag),
            "born host": (self._ips.get(sent.client, born_at), born_at),
            "born time": (content.born_ms, record.born_timestamp),
            "tags": (content.tags, properties.get("TAGS", "")),
            "keys": (content.keys, properties.get("KEYS", "")),
            "hash of the tags": (java_hash(content.tags), code),
            "properties": (
                dict(content.properties),
                {name: told for name, told in properties.items() if name not in self._added},
            ),
        }
        for name, (expected, found) in fields.items():
            if expected != found:
                raise Violation(
                    f"message {sent.number} was sent with the {name} {expected!r}, and {place} "
                    f"holds {found!r}"
                )

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        stored = self._records.get(place)
        if stored is not None and stored != record:
            raise Violation(f"{consumer} is given {record} for {place}, which holds {stored}")
