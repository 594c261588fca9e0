"""Messages that consumers send back because they could not consume them: code 36."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_int, ext_str
from broker.remoting.protocol.frame import Frame


class SendBackProcessor:
    """Handles code 36 (``CONSUMER_SEND_MSG_BACK``)."""

    def __init__(self, context: BrokerContext) -> None:
        self._ingest = context.ingest
        self._guards = context.access is not None and context.access.enforcing

    def send_back(self, connection: Connection, request: Frame) -> None:
        """Stores the message for the group's next attempt; answers when that is committed."""
        self._ingest.send_back(
            ext_int(request, "offset"),
            ext_str(request, "group"),
            ext_int(request, "delayLevel", minimum=-INT32_MAX, maximum=INT32_MAX),
            ext_int(request, "maxReconsumeTimes", -1),
            respond_when_done(connection, request),
            # The permission was checked for this topic (`request_access.py`).
            told_topic=ext_str(request, "originTopic", "") if self._guards else "",
        )
