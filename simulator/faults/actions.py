"""Everything that can be done to a cluster, by its name in a schedule.

Each action is small and has only its arguments, no chance. It leaves a host alone that is not in a
state for it (down already, for example), so that a shortened schedule still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.faults import attacker, derived_file_damage, disk_damage
from simulator.hosts.observed_host import Ending

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from simulator.hosts.client_host import ClientHost

ArgumentType = Callable[[str], str | int | float]
"""Makes an argument of a word of a schedule. Raises ``ValueError``."""

NOTICED = "noticed"
SILENT = "silent"
CONSUMER = "consumer"
LEADER = "leader"


class HostName(str):
    """The name of a host."""

    __slots__ = ()


def one_of(what: str, words: Collection[str]) -> Callable[[str], str]:
    """The type of an argument that is one of these words; ``what`` begins the refusal."""

    def word(text: str) -> str:
        if text not in words:
            raise ValueError(f"{what} {' or '.join(words)}, not {text!r}")
        return text

    return word


LINK_CUT = one_of("a link is cut", (NOTICED, SILENT))
"""How a link is cut: noticed, as a closed socket is, or silent, as a dead cable."""
DERIVED_PART = one_of("beside its log a replica has", derived_file_damage.PARTS)
"""Files of a replica that can be made again from its log."""
DAMAGE_WAY = one_of("a file is", derived_file_damage.WAYS)
VICTIM = one_of("the process that dies is the", (CONSUMER, LEADER))
"""The process that dies."""
CERTIFICATE = one_of("an attacker has", attacker.CERTIFICATES)
FORGERY = one_of("an attacker says", attacker.FORGERIES)


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


def _of_host(name: str, act: Callable[..., None], *types: ArgumentType) -> None:
    """An action on one host; ``act`` gets the host."""

    def run(cluster: FaultTarget, host: str, *arguments: Any) -> None:
        act(cluster.host(host), *arguments)

    ACTIONS[name] = ActionKind(name, (HostName, *types), run)


def _damage(act: Callable[..., None], *types: ArgumentType) -> None:
    """An action on one disk; ``act`` gets the cluster and the host, and names the action."""
    name = act.__name__.replace("_", "-")

    def run(cluster: FaultTarget, host: str, *arguments: Any) -> None:
        act(cluster, cluster.host(host), *arguments)

    ACTIONS[name] = ActionKind(name, (HostName, *types), run)


def _of_client(name: str, act: Callable[[ClientHost], None]) -> None:
    """An action on a client or a NameServer; it does nothing in a cluster of bare nodes."""

    def run(cluster: FaultTarget, client: str) -> None:
        for client_host in cluster.client_hosts_named(client):
            act(client_host)

    ACTIONS[name] = ActionKind(name, (str,), run)


def _of_network(name: str, fault: str) -> None:
    """An action that sets a field of :class:`~simulator.engine.peer_network.NetworkFaults`."""

    def run(cluster: FaultTarget, value: float) -> None:
        setattr(cluster.network.faults, fault, value)

    ACTIONS[name] = ActionKind(name, (float,), run)


# --- processes and machines; within: in the middle of one of the next file calls

_of_host("start", lambda host: host.start())
_of_host("stop", lambda host: host.stop())
_of_host("crash", lambda host: host.crash())
_of_host("crash-within", lambda host, calls: host.end_within_a_call(Ending.CRASH, calls), int)
_of_host("lose-power", lambda host: host.lose_power())
_of_host(
    "lose-power-within", lambda host, calls: host.end_within_a_call(Ending.POWER_LOSS, calls), int
)
_of_host("pause", lambda host: host.pause())
_of_host("resume", lambda host: host.resume())


# --- disks: calls, then damage at rest; a share says how far through the files

_of_host("fail-call", lambda host, calls: host.fail_a_call(calls), int)
_of_host(
    "fail-operation", lambda host, operation, calls: host.fail_a_call(calls, operation), str, int
)
_of_host("fill-disk", lambda host, room: host.fill_disk(room), int)
_of_host("free-disk", lambda host: host.free_disk())
_of_host("slow-disk", lambda host, times: host.slow_disk(times), float)
_of_host("copy-disk", lambda host: host.copy_disk())
_damage(disk_damage.restore_disk)
_damage(disk_damage.wipe_disk)
_damage(disk_damage.flip_bit, float, int)
_damage(disk_damage.lose_sector, float)
_damage(disk_damage.lose_unapplied, float, int)
_damage(disk_damage.lose_file, float)
_damage(disk_damage.cut_file, float)
_damage(disk_damage.swap_files, float, float)
_damage(disk_damage.misdirect_write, float, float)
_damage(derived_file_damage.damage_file, DERIVED_PART, DAMAGE_WAY, float)


@action(str)
def expire(cluster: FaultTarget, host: str) -> None:
    cluster.host(host).expire()


# --- clocks: a jump in milliseconds; seconds that are counted in a second, from the next start on

_of_host("set-clock", lambda host, milliseconds: host.clock.jump(milliseconds), int)
_of_host("drift-clock", lambda host, rate: setattr(host.clock, "rate", rate), float)


# --- the network: shares of the frames, and the longest delay in seconds

_of_network("loss", "loss")
_of_network("duplication", "duplication")
_of_network("reordering", "reordering")
_of_network("flips", "flips")
_of_network("delay", "delay_max")


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


@action(HostName, HostName, LINK_CUT)
def cut(cluster: FaultTarget, sender: str, receiver: str, how: str) -> None:
    """Cuts one direction. ``how``: noticed or silent."""
    cluster.cut(cluster.host(sender), cluster.host(receiver), noticed=how == NOTICED)


@action()
def heal(cluster: FaultTarget) -> None:
    cluster.heal_network()


# --- clients and NameServers

_of_client("start-client", lambda client: client.start())
_of_client("crash-client", lambda client: client.crash())
_of_client("pause-client", lambda client: client.pause())
_of_client("resume-client", lambda client: client.resume())


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


@action(str, VICTIM)
def crash_given(cluster: FaultTarget, client: str, victim: str) -> None:
    """When this consumer next gets messages, it or the leader dies."""
    cluster.crash_given(client, victim)


# --- an attacker


@action(HostName, HostName, CERTIFICATE, FORGERY)
def attack(cluster: FaultTarget, host: str, peer: str, certificate: str, forgery: str) -> None:
    """An attacker connects to a host as one of its peers."""
    attacker.attack(cluster, cluster.host(host), peer, certificate, forgery)
