"""Everything that can be done to a cluster, by the name that a schedule has for it.

Each is small and says all in its arguments: no chance in here. A host that is not in a state for
it (down already, say) is left alone, so that a schedule from which something was taken still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.host import Ending

if TYPE_CHECKING:
    from simulator.cluster import Cluster

Argument = str | int | float
ArgumentType = type[str] | type[int] | type[float]

NOTICED = "noticed"
SILENT = "silent"


class HostName(str):
    """The name of a host."""

    __slots__ = ()


class How(str):
    """How a link is cut: noticed, as a closed socket is, or silent, as a dead cable."""

    __slots__ = ()

    def __new__(cls, text: str) -> How:
        """Raises :class:`ValueError` for any other word."""
        if text not in (NOTICED, SILENT):
            raise ValueError(f"a link is cut {NOTICED} or {SILENT}, not {text!r}")
        return super().__new__(cls, text)


@dataclass(frozen=True, slots=True)
class ActionKind:
    """What an action is called, takes, and does."""

    name: str
    types: tuple[ArgumentType, ...]
    run: Callable[..., None]


ACTIONS: dict[str, ActionKind] = {}


def action(
    *types: ArgumentType,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function of a cluster and such arguments an action; its name is the function's."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        name = run.__name__.replace("_", "-")
        ACTIONS[name] = ActionKind(name, types, run)
        return run

    return register


# --- processes and machines


@action(HostName)
def start(cluster: Cluster, host: str) -> None:
    cluster.host(host).start()


@action(HostName)
def stop(cluster: Cluster, host: str) -> None:
    cluster.host(host).stop()


@action(HostName)
def crash(cluster: Cluster, host: str) -> None:
    cluster.host(host).crash()


@action(HostName, int)
def crash_within(cluster: Cluster, host: str, calls: int) -> None:
    """In the middle of one of its next file calls."""
    cluster.host(host).end_within_a_call(Ending.CRASH, calls)


@action(HostName)
def lose_power(cluster: Cluster, host: str) -> None:
    cluster.host(host).lose_power()


@action(HostName, int)
def lose_power_within(cluster: Cluster, host: str, calls: int) -> None:
    cluster.host(host).end_within_a_call(Ending.POWER_LOSS, calls)


@action(HostName)
def pause(cluster: Cluster, host: str) -> None:
    cluster.host(host).pause()


@action(HostName)
def resume(cluster: Cluster, host: str) -> None:
    cluster.host(host).resume()


# --- disks


@action(HostName, int)
def fail_call(cluster: Cluster, host: str, calls: int) -> None:
    cluster.host(host).fail_a_call(calls)


@action(HostName, int)
def fill_disk(cluster: Cluster, host: str, room: int) -> None:
    cluster.host(host).fill_disk(room)


@action(HostName)
def free_disk(cluster: Cluster, host: str) -> None:
    cluster.host(host).free_disk()


@action(HostName, float)
def slow_disk(cluster: Cluster, host: str, times: float) -> None:
    cluster.host(host).slow_disk(times)


@action(str)
def expire(cluster: Cluster, host: str) -> None:
    cluster.host(host).expire()


# --- the network


@action(HostName, HostName, How)
def cut(cluster: Cluster, sender: str, receiver: str, how: str) -> None:
    """From one to the other, and not back; ``how``: noticed or silent."""
    cluster.cut(cluster.host(sender), cluster.host(receiver), noticed=how == NOTICED)


@action()
def heal(cluster: Cluster) -> None:
    cluster.heal_network()


@action(float)
def loss(cluster: Cluster, share: float) -> None:
    cluster.network.faults.loss = share


@action(float)
def duplication(cluster: Cluster, share: float) -> None:
    cluster.network.faults.duplication = share


@action(float)
def reordering(cluster: Cluster, share: float) -> None:
    cluster.network.faults.reordering = share


@action(float)
def delay(cluster: Cluster, seconds_max: float) -> None:
    cluster.network.faults.delay_max = seconds_max
