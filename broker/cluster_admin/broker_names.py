"""The names of broker groups, as a NameServer tells them: registered ones, and those without a
process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class BrokerName:
    """One broker name by the NameServer, with its addresses by broker id."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The address of the leader, or None."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class DepartedBroker:
    """A broker name without a registered process."""

    name: str
    seconds: float
    """How long it has been gone, in seconds."""
    members: Mapping[str, int]
    """The former broker ids by address; 0 for a node that never followed."""


@dataclass(frozen=True, slots=True)
class Leaders:
    """The leaders of all groups, for a change that each group keeps in its own log."""

    addresses: Mapping[str, str]
    """By broker name."""
    gone: Sequence[str]
    """The broker names without a registered process: no change reaches them."""


def registered_names(document: Mapping[str, Any]) -> list[BrokerName]:
    """The registered broker names of a cluster info (code 106), in order."""
    table = document.get("brokerAddrTable", {})
    return [
        BrokerName(
            name,
            str(table[name].get("cluster", "")),
            {int(key): address for key, address in table[name]["brokerAddrs"].items()},
        )
        for name in sorted(table)
    ]


def departed_names(document: Mapping[str, Any]) -> list[DepartedBroker]:
    """Its broker names without a process, in order."""
    table = document.get("goneTable", {})
    return [
        DepartedBroker(name, table[name]["goneMillis"] / 1000, table[name]["members"])
        for name in sorted(table)
    ]


def unregistered(names: Sequence[str]) -> str:
    """The words for broker names without a registered process."""
    return f"no node of {', '.join(names)} is registered any more"
