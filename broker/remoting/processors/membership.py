"""Members and leadership: requests of operators.

These codes are the project's own: RocketMQ's DLedger cannot change its members online.

====  =========================================================================================
9001  GET_GROUP_MEMBERS: a JSON body with voters, learners, addresses, incarnations (any node)
9002  CHANGE_GROUP_MEMBERS: ``action`` add (with ``peerAddr``, ``brokerAddr``, ``httpAddr``),
      promote or remove, and ``node``; answered when the change is committed, or cancelled
9003  TRANSFER_LEADERSHIP: ``node``; answered when it leads, or when it failed to
====  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.admin.membership import members_json, parse_member
from broker.config.node_config import NODE_NAME
from broker.context import BrokerContext
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from dledger.wire.endpoint import EndpointError
from store.quoting import quoted


class MemberProcessor:
    """Handles the codes above."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def members(self, connection: Connection, request: Frame) -> None:
        """Code 9001."""
        connection.respond(request, body=self._body())

    def change(self, connection: Connection, request: Frame) -> None:
        """Code 9002."""
        node = self._node(request)
        action = ext_str(request, "action")
        membership = self._context.node.membership
        done = respond_when_done(connection, request, self._body)
        try:
            if action == "add":
                address = parse_member(
                    ext_str(request, "peerAddr"),
                    ext_str(request, "brokerAddr"),
                    ext_str(request, "httpAddr"),
                )
                membership.add_learner(node, address, done)
            elif action == "promote":
                membership.promote(node, done)
            elif action == "remove":
                membership.remove(node, done)
            else:
                raise FieldError(f"action {quoted(action)} is none of add, promote, remove")
        except EndpointError as error:
            raise FieldError(str(error)) from error

    def transfer(self, connection: Connection, request: Frame) -> None:
        """Code 9003."""
        node = self._node(request)
        done = respond_when_done(connection, request, self._body)
        self._context.node.membership.transfer(node, done)

    def _node(self, request: Frame) -> str:
        node = ext_str(request, "node")
        if NODE_NAME.fullmatch(node) is None:
            raise FieldError(f"node {quoted(node)} is not allowed; it may be n0, n1, n2 and so on")
        return node

    def _body(self) -> Sequence[bytes]:
        return (encode_json(members_json(self._context)),)
