"""Taking what a producer sends that is not to be delivered at once: the rare way of a send."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.deferred.waiting import waiting_place
from broker.processors.sendheader import SendHeader, checked_properties, refuse_half_message
from broker.staging import Waiter
from store.filesystem import Bytes
from store.record import stage_message


class DeferredSend:
    """Stages such messages where they wait."""

    def __init__(self, context: BrokerContext) -> None:
        self._gatherer = context.gatherer

    def stage(
        self, header: SendHeader, queue_id: int, body: Bytes, born_host: bytes, waiter: Waiter
    ) -> None:
        """Raises as the staging of any message, and
        :class:`~broker.remoting.errors.RequestError` for a time that cannot be."""
        properties = checked_properties(header.properties)
        refuse_half_message(properties)
        place = waiting_place(header.topic, queue_id, properties)
        message = stage_message(
            place.topic,
            body,
            place.properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=born_host,
            reconsume_times=header.reconsume_times,
        )
        self._gatherer.add_message(place.topic, place.queue_id, message, waiter)
