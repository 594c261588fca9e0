"""Where the nodes of a soak live: network namespaces with links that can be cut, or loopback.

Each node has a namespace of its own and one link to this process's namespace, which forwards
between them. A rule drops what comes in by one node's link for another one's address. So it cuts
one direction and nothing else, and the sender hears nothing, as on a real network. All of it is
made inside namespaces that the run was started in, and ends with them.
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

ISOLATED = "DLEDGER_SOAK_ISOLATED"
"""In the environment of a run that was restarted in namespaces of its own."""

UNSHARE = ("unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
"""With the first process of a namespace of processes all others end, however it ends."""
NETWORK = "10.213.0"
OWN_ADDRESS = f"{NETWORK}.254"
PORTS = (10915, 10911, 8080)
"""Of each node for its peers, clients and HTTP."""
NODES_MAX = 200
FORWARDING = "/proc/sys/net/ipv4/ip_forward"
READY_SECONDS = 5.0


class Network(Protocol):
    """How nodes are reached and cut off. Nodes are numbered from 0."""

    missing: str | None
    """Why links cannot be cut here; None if they can."""

    def namesrv(self) -> Endpoint:
        """Where the NameServer listens."""

    def member(self, number: int) -> Member:
        """The addresses of a node, which may be new."""

    def starter(self, number: int) -> Starter:
        """The command that starts the node's process in its place."""

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that ``sender`` sends reaches ``receiver`` any more."""

    def mend(self, sender: int, receiver: int) -> None:
        """It does again."""

    def unplug(self, number: int) -> None:
        """The node reaches nobody, not even clients, and nobody reaches it."""

    def plug(self, number: int) -> None:
        """It does again."""

    def close(self) -> None:
        """Ends what the network needed."""


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
    """Namespaces where they can be had, else loopback, which says why."""
    if ISOLATED not in os.environ:
        return Loopback("the machine allows no network namespaces of one's own")
    try:
        return Namespaces()
    except (OSError, subprocess.CalledProcessError) as error:
        return Loopback(f"no links between network namespaces: {error}")


class Loopback:
    """All nodes on 127.0.0.1; no link can be cut."""

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
        """The processes that keep the namespaces, by node."""
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
        """The command that runs another in the namespace of a node, which is made if need be."""
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
    """``unshare`` has left our namespace: a link must not be put into the wrong one."""
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
