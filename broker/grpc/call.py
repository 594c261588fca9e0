"""One call of a client, without its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.grpc.protocol.definition_pb2 import Resource
from broker.remoting.protocol.addresses import NO_HOST, host_bytes
from broker.security.authorize import EVERYBODY, Caller
from dledger.wire.endpoint import Endpoint, EndpointError

TELEMETRY = "Telemetry"
"""The method of a client's stream, and of its commands that brokers forward."""


def _hold_anything(_size: int) -> None:
    """Outside a dispatcher nothing is counted."""


@dataclass(frozen=True, slots=True)
class Call:
    """``client`` is the client's ``host:port``, also if another broker forwards the call."""

    method: str
    metadata: Mapping[str, str]
    client: str
    forwarded: bool = False
    """Whether another broker forwarded the call. It is not forwarded again."""
    seconds: float | None = None
    """How long the client waits for the answer from now on; None: unknown."""
    tls: bool = False
    """Whether the client uses TLS with this broker."""
    caller: Caller = EVERYBODY
    """The caller, once it was checked."""
    hold: Callable[[int], None] = field(default=_hold_anything, compare=False, repr=False)
    """Counts so many bytes that are made of the request, until the call ends. Raises
    :class:`~dledger.errors.BusyError`."""

    @property
    def client_id(self) -> str:
        """The client id; empty if the client sends none."""
        return self.metadata.get("x-mq-client-id", "")

    @property
    def born_host(self) -> bytes:
        """The client's address as in records: 4 bytes of IPv4, the port as i32."""
        try:
            return host_bytes(*Endpoint.parse(self.client))
        except EndpointError:
            return NO_HOST


def name_of(resource: Resource) -> str:
    """The name of a topic or group; with a namespace ``namespace%name``, as in RocketMQ."""
    if resource.resource_namespace:
        return f"{resource.resource_namespace}%{resource.name}"
    return resource.name
