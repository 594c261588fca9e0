"""Everything that can be done to a cluster, by its name in a schedule.

Each action is small and has only its arguments, no chance. It leaves a host alone that is not in a
state for it (down already, for example), so that a shortened schedule still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.faults import attacker, derived_file_damage, disk_damage
from simulator.hosts.observed_host import Ending

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget

ArgumentType = type[str] | type[int] | type[float]

NOTICED = "noticed"
SILENT = "silent"
CONSUMER = "consumer"
LEADER = "leader"


class HostName(str):
    """The name of a host."""

    __slots__ = ()


class LinkCut(str):
    """How a link is cut: noticed, as a closed socket is, or silent, as a dead cable."""

    __slots__ = ()

    def __new__(cls, text: str) -> LinkCut:
        """Raises :class:`ValueError` for any other word."""
        if text not in (NOTICED, SILENT):
            raise ValueError(f"a link is cut {NOTICED} or {SILENT}, not {text!r}")
        return super().__new__(cls, text)


class DerivedPart(str):
    """Files of a replica that can be made again from its log."""

    __slots__ = ()

    def __new__(cls, text: str) -> DerivedPart:
        """Raises :class:`ValueError` for any other word."""
        if text not in derived_file_damage.PARTS:
            raise ValueError(
                f"beside its log a replica has {', '.join(derived_file_damage.PARTS)}, not {text!r}"
            )
        return super().__new__(cls, text)


class DamageWay(str):
    """How a file is damaged."""

    __slots__ = ()

    def __new__(cls, text: str) -> DamageWay:
        """Raises :class:`ValueError` for any other word."""
        if text not in derived_file_damage.WAYS:
            raise ValueError(f"a file is {', '.join(derived_file_damage.WAYS)}, not {text!r}")
        return super().__new__(cls, text)


class Victim(str):
    """The process that dies."""

    __slots__ = ()

    def __new__(cls, text: str) -> Victim:
        """Raises :class:`ValueError` for any other word."""
        if text not in (CONSUMER, LEADER):
            raise ValueError(f"the {CONSUMER} dies or the {LEADER}, not {text!r}")
        return super().__new__(cls, text)


@dataclass(frozen=True, slots=True)
class ActionKind:
    """Name, arguments and function of an action."""

    name: str
    types: tuple[ArgumentType, ...]
    run: Callable[..., None]


ACTIONS: dict[str, ActionKind] = {}


def action(
    *types: ArgumentType,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes an action of a function of a cluster and such arguments; its name is the function's."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        name = run.__name__.replace("_", "-")
        ACTIONS[name] = ActionKind(name, types, run)
        return run

    return register


# --- processes and machines


@action(HostName)
def start(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).start()


@action(HostName)
def stop(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).stop()


@action(HostName)
def crash(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).crash()


@action(HostName, int)
def crash_within(cluster: FaultTarget, host: str, calls: int) -> None:
    """Crashes in the middle of one of its next file calls."""
    cluster.host(host).end_within_a_call(Ending.CRASH, calls)


@action(HostName)
def lose_power(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).lose_power()


@action(HostName, int)
def lose_power_within(cluster: FaultTarget, host: str, calls: int) -> None:
    cluster.host(host).end_within_a_call(Ending.POWER_LOSS, calls)


@action(HostName)
def pause(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).pause()


@action(HostName)
def resume(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).resume()


# --- disks


@action(HostName, int)
def fail_call(cluster: FaultTarget, host: str, calls: int) -> None:
    cluster.host(host).fail_a_call(calls)


@action(HostName, int)
def fill_disk(cluster: FaultTarget, host: str, room: int) -> None:
    cluster.host(host).fill_disk(room)


@action(HostName)
def free_disk(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).free_disk()


@action(HostName, float)
def slow_disk(cluster: FaultTarget, host: str, times: float) -> None:
    cluster.host(host).slow_disk(times)


@action(str)
def expire(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).expire()


# --- the network


@action(HostName)
def withhold_commits(cluster: FaultTarget, host: str) -> None:
    """Its messages that tell of more committed entries than there are now are lost, until all is
    healed. Only its clients hear of entries that it commits then."""
    node = cluster.host(host).node
    if node is not None:
        cluster.network.withhold_commits(host, node.core.commit_index)


@action(HostName, str, float)
def delay_stream(cluster: FaultTarget, host: str, client_host: str, seconds: float) -> None:
    """Its bytes to a client or a NameServer arrive ``seconds`` later, until all is healed."""
    cluster.network.late[host, client_host] = seconds


@action(HostName, HostName, LinkCut)
def cut(cluster: FaultTarget, sender: str, receiver: str, how: str) -> None:
    """Cuts one direction. ``how``: noticed or silent."""
    cluster.cut(cluster.host(sender), cluster.host(receiver), noticed=how == NOTICED)


@action()
def heal(cluster: FaultTarget) -> None:
    cluster.heal_network()


@action(float)
def loss(cluster: FaultTarget, share: float) -> None:
    cluster.network.faults.loss = share


@action(float)
def duplication(cluster: FaultTarget, share: float) -> None:
    cluster.network.faults.duplication = share


@action(float)
def reordering(cluster: FaultTarget, share: float) -> None:
    cluster.network.faults.reordering = share


@action(float)
def flips(cluster: FaultTarget, share: float) -> None:
    """Bits flip in this share of the frames between peers."""
    cluster.network.faults.flips = share


@action(float)
def delay(cluster: FaultTarget, seconds_max: float) -> None:
    cluster.network.faults.delay_max = seconds_max


# --- clients and NameServers; nothing in a cluster of bare nodes


@action(str)
def start_client(cluster: FaultTarget, client: str) -> None:
    for client_host in cluster.client_hosts_named(client):
        client_host.start()


@action(str)
def crash_client(cluster: FaultTarget, client: str) -> None:
    for client_host in cluster.client_hosts_named(client):
        client_host.crash()


@action(str)
def pause_client(cluster: FaultTarget, client: str) -> None:
    for client_host in cluster.client_hosts_named(client):
        client_host.pause()


@action(str)
def resume_client(cluster: FaultTarget, client: str) -> None:
    for client_host in cluster.client_hosts_named(client):
        client_host.resume()


@action(str, str)
def cut_client(cluster: FaultTarget, client: str, host: str) -> None:
    """Cuts both ways, silently."""
    for client_host in cluster.client_hosts_named(client):
        cluster.network.cut(client_host.name, host, noticed=False)
        cluster.network.cut(host, client_host.name, noticed=False)


@action(HostName)
def write_at_once(cluster: FaultTarget, host: str) -> None:
    """Clients of offsets and topics write each of them at this host, now."""
    cluster.ask_at_once(cluster.host(host), True)


@action(HostName)
def read_at_once(cluster: FaultTarget, host: str) -> None:
    """As ``write_at_once``, but they read."""
    cluster.ask_at_once(cluster.host(host), False)


@action(str, Victim)
def crash_given(cluster: FaultTarget, client: str, victim: str) -> None:
    """When this consumer next gets messages, it or the leader dies."""
    cluster.crash_given(client, victim)


# --- clocks


@action(HostName, int)
def set_clock(cluster: FaultTarget, host: str, milliseconds: int) -> None:
    """The wall clock jumps by this many milliseconds."""
    cluster.host(host).clock.jump(milliseconds)


@action(HostName, float)
def drift_clock(cluster: FaultTarget, host: str, rate: float) -> None:
    """From its next start on, its clock counts ``rate`` seconds in a second."""
    cluster.host(host).clock.rate = rate


# --- disks, call by call and at rest


@action(HostName, str, int)
def fail_operation(cluster: FaultTarget, host: str, operation: str, calls: int) -> None:
    """The call of that name with this number fails: ``pread``, ``pwrite``, ``datasync``,
    ``rename``."""
    cluster.host(host).fail_a_call(calls, operation)


@action(HostName, float, int)
def flip_bit(cluster: FaultTarget, host: str, share: float, bit: int) -> None:
    """Damage at rest to the log below the durable mark; ``share`` of the way through it."""
    disk_damage.flip_bit(cluster, cluster.host(host), share, bit)


@action(HostName, float)
def lose_sector(cluster: FaultTarget, host: str, share: float) -> None:
    """The disk cannot read a sector. If its block is written as a whole, it can be read again."""
    disk_damage.lose_sector(cluster, cluster.host(host), share)


@action(HostName, float, int)
def lose_unapplied(cluster: FaultTarget, host: str, share: float, size: int) -> None:
    """``size`` bytes of the log cannot be read, between the newest checkpoint and the durable mark;
    ``share`` of the way from the one to the other."""
    disk_damage.lose_unapplied(cluster, cluster.host(host), share, size)


@action(HostName, DerivedPart, DamageWay, float)
def damage_file(cluster: FaultTarget, host: str, part: str, way: str, share: float) -> None:
    """Damage at rest to derived files; ``share`` of the way through them."""
    derived_file_damage.damage_file(cluster, cluster.host(host), part, way, share)


@action(HostName, HostName, attacker.Certificate, attacker.Forgery)
def attack(cluster: FaultTarget, host: str, peer: str, certificate: str, forgery: str) -> None:
    """An attacker connects to a host as one of its peers."""
    attacker.attack(cluster, cluster.host(host), peer, certificate, forgery)


@action(HostName)
def wipe_disk(cluster: FaultTarget, host: str) -> None:
    """An empty disk replaces its disk, on a minority of the machines of a run."""
    disk_damage.wipe_disk(cluster, cluster.host(host))


@action(HostName)
def copy_disk(cluster: FaultTarget, host: str) -> None:
    """Copies the disk of a running process, for :func:`restore_disk`."""
    cluster.host(host).copy_disk()


@action(HostName)
def restore_disk(cluster: FaultTarget, host: str) -> None:
    """The copy replaces the disk, if the group can recognise that loss."""
    disk_damage.restore_disk(cluster, cluster.host(host))


@action(HostName, float)
def lose_file(cluster: FaultTarget, host: str, share: float) -> None:
    disk_damage.lose_file(cluster, cluster.host(host), share)


@action(HostName, float)
def cut_file(cluster: FaultTarget, host: str, share: float) -> None:
    disk_damage.cut_file(cluster, cluster.host(host), share)


@action(HostName, float, float)
def swap_files(cluster: FaultTarget, host: str, one: float, other: float) -> None:
    disk_damage.swap_files(cluster, cluster.host(host), one, other)


@action(HostName, float, float)
def misdirect_write(cluster: FaultTarget, host: str, source: float, target: float) -> None:
    disk_damage.misdirect_write(cluster, cluster.host(host), source, target)
