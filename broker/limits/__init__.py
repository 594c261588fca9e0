"""All limits of a broker or a NameServer for data that others can make grow, in one typed place.

A limit is a field of a class; modules use the instance below the class. A name with ``_MAX``
elsewhere is not such a limit, and its docstring begins with one of these words
(``tests/broker/test_limits.py``):

- ``Format:`` fixed by a format or by RocketMQ's protocol.
- ``Setting:`` the range of a value in ``node.toml``.
- ``Pace:`` how much this process does by itself at a time, or how long it waits.
"""

from __future__ import annotations

from broker.limits.admin import ADMIN, CONSOLE, METRICS, AdminLimits, ConsoleLimits, MetricLimits
from broker.limits.body import BODY_LIMITS, BodyLimits
from broker.limits.clients import CLIENTS, ClientLimits
from broker.limits.consume import CONSUME, ConsumeLimits
from broker.limits.grpc import GRPC, GrpcLimits
from broker.limits.http import HTTP, HttpLimits
from broker.limits.nameserver import NAMESERVER, NameServerLimits
from broker.limits.produce import PRODUCE, ProduceLimits
from broker.limits.quotas import QUOTAS, QuotaLimits
from broker.limits.remoting import FORWARDING, REMOTING, ForwardingLimits, RemotingLimits
from broker.limits.state import STATE, StateLimits

__all__ = [
    "ADMIN",
    "BODY_LIMITS",
    "CLIENTS",
    "CONSOLE",
    "CONSUME",
    "FORWARDING",
    "GRPC",
    "HTTP",
    "METRICS",
    "NAMESERVER",
    "PRODUCE",
    "QUOTAS",
    "REMOTING",
    "STATE",
    "AdminLimits",
    "BodyLimits",
    "ClientLimits",
    "ConsoleLimits",
    "ConsumeLimits",
    "ForwardingLimits",
    "GrpcLimits",
    "HttpLimits",
    "MetricLimits",
    "NameServerLimits",
    "ProduceLimits",
    "QuotaLimits",
    "RemotingLimits",
    "StateLimits",
]
