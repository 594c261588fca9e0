"""The NameServer of a run: no late registration replaces that of a later leader.

A registration of a deposed leader, or of an earlier process of a broker, may come at any time over
a slow link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.nameserver.registration_checks import EarlierConnectionError, StaleTermError
from broker.nameserver.registrations import LEADER_ID, Registration
from broker.nameserver.route_table import RegisterResult, RouteTable
from broker.nameserver.server import NameServer
from broker.security.access_control import AccessControl
from broker.security.cluster_secrets import ClusterSecrets
from simulator.engine.violation import Violation
from simulator.hosts.client_host import ClientHost

NAME_SERVER = ("10.0.0.200", 9876)
NAME_SERVERS = ":".join(map(str, NAME_SERVER))
"""The address of the NameServer."""


class CheckedRouteTable(RouteTable):
    """Compares each registration that is taken with those before it."""

    def __init__(self, clock: Callable[[], int], client_host: ClientHost) -> None:
        super().__init__(clock)
        self._client_host = client_host
        self._terms: dict[str, tuple[int, str]] = {}  # by name, the highest term and its owner
        self._channels: dict[str, int] = {}  # by address, the latest connection that registered

    def register(self, registration: Registration, channel: int, host: str = "") -> RegisterResult:
        """See :class:`RouteTable`."""
        name, address = registration.broker_name, registration.address
        if name not in self.cluster_info()["brokerAddrTable"]:
            self._terms.pop(name, None)
        if address not in self._live:
            self._channels.pop(address, None)  # the later connection has ended since
        try:
            result = super().register(registration, channel, host)
        except (StaleTermError, EarlierConnectionError) as error:
            self._client_host.note(f"refuses a registration: {error}")
            self._client_host.coverage_mark("registration came late")
            raise
        if registration.broker_id == LEADER_ID:
            term, leader = self._terms.get(name, (0, ""))
            told = registration.term or 0
            if told < term:
                raise Violation(
                    f"the NameServer takes {address} of term {told} for the leader, though "
                    f"{leader} has registered as that of term {term}"
                )
            self._terms[name] = told, address
        if channel < self._channels.get(address, channel):
            raise Violation(
                f"the NameServer takes what {address} said over a connection, though it has "
                "registered over a later one"
            )
        self._channels[address] = channel
        return result


class CheckedNameServer(NameServer):
    """See the module."""

    def __init__(
        self, client_host: ClientHost, host: str, port: int, secrets: ClusterSecrets | None
    ) -> None:
        """With ``secrets``, access control is enforced."""
        loop = asyncio.get_running_loop()
        access = (
            None
            if secrets is None
            else AccessControl(enforcing=True, secrets=secrets, now_ms=client_host.clock.wall_ms)
        )
        super().__init__(loop, host, port, access=access)
        self.routes = CheckedRouteTable(lambda: int(loop.time() * 1000), client_host)
