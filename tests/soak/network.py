"""The network of a soak: network namespaces with links that can be cut, or loopback.

Each node has a namespace of its own, and a link to the namespace of this process, which forwards
between them. A rule drops what comes in by one node's link for the address of another. So it cuts
only one direction, and the sender gets no error, as on a real network. All is made inside
namespaces in which the run was started, and ends with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from broker.cli.local_cluster.managed_processes import Child, Starter, execute
from broker.config.node_addresses import Member
from dledger.wire.endpoint import Endpoint
from tests.support.free_ports import free_member

ISOLATED = "DLEDGER_TEST_ISOLATED"
"""Set in the environment of a run that was restarted in namespaces of its own."""

UNSHARE = ("unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
"""All processes of a process namespace end with its first one."""
NETWORK = "10.213.0"
OWN_ADDRESS = f"{NETWORK}.254"
PORTS = (10915, 10911, 8080)
"""The ports of each node for peers, clients and HTTP."""
NODES_MAX = 200
FORWARDING = "/proc/sys/net/ipv4/ip_forward"
READY_SECONDS = 5.0


class Network(Protocol):
    """The network of the nodes, whose links can be cut. Nodes are numbered from 0."""

    missing: str | None
    """Why links cannot be cut; ``None`` if they can."""

    def namesrv(self) -> Endpoint:
        """The address of the NameServer."""

    def member(self, number: int) -> Member:
        """The addresses of a node, which may be new."""

    def starter(self, number: int) -> Starter:
        """The words before a command that run it at the node's place."""

    def cut(self, sender: int, receiver: int) -> None:
        """Cuts one direction: nothing from ``sender`` reaches ``receiver``."""

    def mend(self, sender: int, receiver: int) -> None:
        """Undoes :meth:`cut`."""

    def unplug(self, number: int) -> None:
        """Cuts a node off from all others, and from clients."""

    def plug(self, number: int) -> None:
        """Undoes :meth:`unplug`."""

    def close(self) -> None:
        """Ends the network."""


def isolate() -> None:
    """Restarts this program in namespaces of its own; returns where that is not allowed, or where
    it runs in them already."""
    if ISOLATED in os.environ:
        return
    arguments = [*UNSHARE, *(() if os.geteuid() == 0 else ("--map-root-user",))]
    try:
        able = subprocess.run([*arguments, "true"], capture_output=True, check=False)
    except OSError:
        return
    if able.returncode == 0:
        environment = {**os.environ, ISOLATED: "1"}
        program = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        os.execvpe(arguments[0], [*arguments, "--", *program], environment)


def open_network() -> Network:
    """Namespaces if they are allowed; else loopback, which says why."""
    if ISOLATED not in os.environ:
        return Loopback("the machine allows no network namespaces of one's own")
    try:
        return Namespaces()
    except (OSError, subprocess.CalledProcessError) as error:
        return Loopback(f"no links between network namespaces: {error}")


class Loopback:
    """All nodes are on 127.0.0.1. No link can be cut."""

    def __init__(self, missing: str) -> None:
        self.missing: str | None = missing
        self._members: dict[int, Member] = {}
        self._namesrv = free_member().address

    def namesrv(self) -> Endpoint:
        return self._namesrv

    def member(self, number: int) -> Member:
        if number not in self._members:
            self._members[number] = free_member()
        return self._members[number]

    def starter(self, number: int) -> Starter:
        return execute

    def cut(self, sender: int, receiver: int) -> None:
        raise NotImplementedError(self.missing)

    mend = cut

    def unplug(self, number: int) -> None:
        raise NotImplementedError(self.missing)

    plug = unplug

    def close(self) -> None:
        return


class Namespaces:
    """See the module."""

    def __init__(self) -> None:
        self.missing: str | None = None
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        """By node, the process that keeps its namespace."""
        _ip("link set lo up")
        _ip(f"addr add {OWN_ADDRESS}/32 dev lo")
        Path(FORWARDING).write_text("1")
        self._enter(0)

    def namesrv(self) -> Endpoint:
        return Endpoint(OWN_ADDRESS, 9876)

    def member(self, number: int) -> Member:
        return Member(*(Endpoint(_address(number), port) for port in PORTS))

    def starter(self, number: int) -> Starter:
        enter = self._enter(number)

        def start(arguments: Sequence[str], log: BinaryIO) -> Child:
            return execute([*enter, *arguments], log)

        return start

    def cut(self, sender: int, receiver: int) -> None:
        _ip(f"rule add iif {_link(sender)} to {_address(receiver)} blackhole")

    def mend(self, sender: int, receiver: int) -> None:
        _ip(f"rule del iif {_link(sender)} to {_address(receiver)} blackhole")

    def unplug(self, number: int) -> None:
        _ip(f"link set {_link(number)} down")

    def plug(self, number: int) -> None:
        _ip(f"link set {_link(number)} up")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _enter(self, number: int) -> list[str]:
        """The words that run a command in the namespace of a node, which is made if needed."""
        assert number < NODES_MAX
        if number not in self._holders:
            holder = self._holders[number] = subprocess.Popen(["unshare", "--net", "sleep", "inf"])
            _wait_until_apart(holder)
            link = _link(number)
            _ip(f"link add {link} type veth peer name uplink netns {holder.pid}")
            _ip(f"link set {link} up")
            _ip(f"addr add {OWN_ADDRESS} peer {_address(number)} dev {link}")
            inside = _nsenter(holder)
            _ip("link set lo up", inside)
            _ip("link set uplink up", inside)
            _ip(f"addr add {_address(number)} peer {OWN_ADDRESS} dev uplink", inside)
            _ip(f"route add default via {OWN_ADDRESS}", inside)
        return _nsenter(self._holders[number])


def _address(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


def _link(number: int) -> str:
    return f"node{number}"


def _nsenter(holder: subprocess.Popen[bytes]) -> list[str]:
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]


def _wait_until_apart(holder: subprocess.Popen[bytes]) -> None:
    """Waits until ``unshare`` has left our namespace: the link must get into the new one."""
    own = os.readlink("/proc/self/ns/net")
    ends_at = time.monotonic() + READY_SECONDS
    while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
        if time.monotonic() >= ends_at or holder.poll() is not None:
            raise OSError("unshare made no network namespace")
        time.sleep(0.005)


def _ip(what: str, inside: Sequence[str] = ()) -> None:
    command = [*inside, "ip", *what.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {what}: {done.stderr.strip()}")
