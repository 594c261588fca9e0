"""Permissions over gRPC: the one place that identifies a call's caller and checks its permission.

A caller is identified by the metadata ``authorization``::

    MQv2-HMAC-SHA1 Credential=KEY[/...], SignedHeaders=x-mq-date-time, Signature=HEX

The signature is the HMAC-SHA1 of the value of ``x-mq-date-time`` with the secret key. Some clients
write local time there, so its age is not checked. A client without keys sends an empty key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from broker.errors import UnauthenticatedError
from broker.grpc.call import Call, name_of
from broker.grpc.protocol.definition_pb2 import Resource
from broker.quotas.throttle import Caller
from broker.security import authorize
from broker.security.access_control import AccessControl
from broker.security.authorize import Access, consume, consume_as, publish
from dledger.wire.endpoint import address_host

_AUTHORIZATION = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^,/\s]*)[^,]*,\s*SignedHeaders=x-mq-date-time,"
    r"\s*Signature=([0-9a-fA-F]*)\s*"
)


class GrpcAccess:
    """Checks the calls of one gRPC port."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def check(self, call: Call, needed: Callable[[], Iterable[Access]]) -> authorize.Caller:
        """The caller of a call. Raises :class:`~broker.errors.AccessDeniedError` if it lacks a
        permission."""
        return self._access.check(lambda: self._caller(call), needed, f"gRPC, {call.client}")

    def _caller(self, call: Call) -> authorize.Caller:
        host = address_host(call.client)
        told = call.metadata.get("authorization", "")
        if not told:
            return self._access.unknown(host)
        found = _AUTHORIZATION.fullmatch(told.strip())
        if found is None:
            raise UnauthenticatedError("authorization is not MQv2-HMAC-SHA1 over x-mq-date-time")
        access_key, signature = found.groups()
        if not access_key:
            return self._access.unknown(host)
        signed = call.metadata.get("x-mq-date-time", "")
        return self._access.with_hmac_sha1(access_key, signed.encode(), signature, host)


def caller_of(call: Call) -> Caller:
    """The caller whose quotas count for a call."""
    account = call.caller.account
    return Caller("" if account is None else account.access_key, call.client_id)


def consumes(group: Resource, topic: Resource) -> Iterable[Access]:
    """The permissions that a member of a group needs for a topic."""
    return (consume_as(name_of(group)), consume(name_of(topic)))


def publishes(topics: Iterable[Resource]) -> Iterable[Access]:
    """The permissions that a producer needs."""
    return tuple(publish(name) for name in {name_of(topic) for topic in topics})
