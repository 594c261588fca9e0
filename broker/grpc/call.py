"""One call of a client: what came with the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.grpc.protocol.definition_pb2 import Resource
from broker.remoting.protocol.addresses import NO_HOST, host_bytes
from broker.security.authorize import EVERYBODY, Caller
from dledger.wire.endpoint import Endpoint, EndpointError


@dataclass(frozen=True, slots=True)
class Call:
    """``client`` is the client's ``host:port``, also if another broker forwards its call."""

    method: str
    metadata: Mapping[str, str]
    client: str
    forwarded: bool = False
    """Another broker passed it on: it goes no further."""
    seconds: float | None = None
    """How long the client waits for the answer; None: it does not say."""
    tls: bool = False
    """The client speaks TLS with this broker."""
    caller: Caller = EVERYBODY
    """Who calls, once that was checked."""

    @property
    def client_id(self) -> str:
        """What the client calls itself; empty if it does not say."""
        return self.metadata.get("x-mq-client-id", "")

    @property
    def born_host(self) -> bytes:
        """The client's address as records hold it."""
        try:
            return host_bytes(*Endpoint.parse(self.client))
        except EndpointError:
            return NO_HOST


def name_of(resource: Resource) -> str:
    """The name of a topic or group. One with a namespace is ``namespace%name``, as in RocketMQ."""
    if resource.resource_namespace:
        return f"{resource.resource_namespace}%{resource.name}"
    return resource.name
