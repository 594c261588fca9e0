"""Where the CPU time of a message goes: shares of the folders, and a flame graph.

``python -m tests.bench.step_cost [DIRECTORY]`` starts three nodes, sends messages, and samples the
stacks of the leader, of a follower and of the client meanwhile. It needs py-spy on the path
(``pip install py-spy``). Under each table stands the flame graph of the leader as a tree: functions
below those that call them. Files of all stacks stay in DIRECTORY, for a program that draws.

A sample counts for the innermost function of this project, so what a library does counts for its
caller. Samples of a thread that waits for events or jobs are left out: the sampler cannot tell a
thread that waits from one that has just woken, or that reads a socket in the compiled event loop.
``perf`` can.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from broker.bench.jobs import LoadShape, ProduceJob
from broker.bench.process_usage import cpu_seconds
from broker.bench.worker_client import LoadClient
from broker.cli.benchmark.measured import LOAD_SHAPES, admin_of
from broker.cli.local_cluster.temporary_cluster import server_pids, temporary_cluster
from broker.cli.terminal.options import DEFAULT_CLUSTER
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.topics import create_topic

TOPIC = "step-cost"
SECONDS = 10.0
SAMPLES_A_SECOND = 400

ROOMS = {"broker", "dledger", "store"}
CHECKPOINTS = "dledger/node/checkpointer.py"
BASES = ("Runner.run", "ThreadExecutor._run")
CHAIN_SHARE = 0.97
WIDTH = 110
BESIDES = "Python and libraries besides"


def room_of(stack: str) -> str | None:
    """The folder of the innermost function of this project in a stack ``outer (file:line);...``;
    None for a thread that waits.

    Checkpoints are a room of their own, because they use those of others.
    """
    if stack.rpartition(";")[2].partition(" (")[0] in BASES:
        return None
    frames = [frame.rpartition("(")[2].partition(":")[0] for frame in stack.split(";")]
    if any(path.endswith(CHECKPOINTS) for path in frames):
        return "checkpoints, durable mark, room ahead"
    for path in reversed(frames):
        parts = path.split("/")
        for place, part in enumerate(parts):
            if part in ROOMS and place + 2 < len(parts):
                return "/".join(parts[place : place + 2])
    return BESIDES


class Calls:
    """A function in a tree of calls, with the samples of it and of all that it calls."""

    def __init__(self) -> None:
        self.samples = 0
        self.callees: dict[str, Calls] = {}

    def add(self, functions: Sequence[str], samples: int) -> None:
        """A stack below this function."""
        called = self
        called.samples += samples
        for function in functions:
            called = called.callees.setdefault(function, Calls())
            called.samples += samples

    def lines(self, least: int, depth: int = 0) -> Iterator[tuple[int, int, str]]:
        """Depth, samples and name of each function that has ``least`` samples, callers first. Those
        that do little but call one other stand in its line."""
        ordered = sorted(self.callees.items(), key=lambda item: -item[1].samples)
        for function, calls in ordered:
            if calls.samples < least:
                return
            name, last = function, calls
            while last.callees:
                callee, most = max(last.callees.items(), key=lambda item: item[1].samples)
                if most.samples < CHAIN_SHARE * calls.samples:
                    break
                name, last = f"{name} > {callee}", most
            yield depth, calls.samples, name
            yield from last.lines(least, depth + 1)


def call_tree(stacks: Iterable[str]) -> Calls:
    """The calls in stacks, from below the event loop, or a thread's first function, on."""
    tree = Calls()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if room_of(stack) is None:
            continue
        functions = [frame.partition(" (")[0] for frame in stack.split(";")]
        for base in BASES:
            if base in functions:
                functions = functions[functions.index(base) :]
        tree.add(functions, int(count))
    return tree


def print_tree(tree: Calls) -> None:
    """Shares of all samples, of those that have one in fifty at least."""
    for depth, samples, name in tree.lines(max(1, tree.samples // 50)):
        text = f"{100 * samples / tree.samples:5.1f} %  {'  ' * depth}{name}"
        print(text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}...")


def by_room(stacks: Iterable[str]) -> dict[str, float]:
    """The share of each room, in percent. Each line is a stack and the number of its samples."""
    samples: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        room = room_of(stack)
        if room is not None:
            samples[room] += int(count)
    return {room: 100 * count / samples.total() for room, count in samples.most_common()}


def sampled(pid: int, output: Path) -> subprocess.Popen[bytes]:
    """Samples a process while the load runs."""
    rate, seconds = str(SAMPLES_A_SECOND), str(int(SECONDS) - 1)
    command = ["py-spy", "record", "--nonblocking", "--rate", rate, "--duration", seconds]
    return subprocess.Popen(
        [*command, "--format", "raw", "--output", str(output), "--pid", str(pid)],
        stdout=subprocess.DEVNULL,
    )


class Process(NamedTuple):
    """What was measured of one."""

    micros: float
    """The CPU time of a message."""
    rooms: Mapping[str, float]
    stacks: list[str]


def measure(shape: LoadShape, directory: Path) -> dict[str, Process]:
    """The leader, a follower and the client."""
    with (
        temporary_cluster(directory, 3, "sync") as cluster,
        LoadClient(str(cluster.namesrv), admin_of(cluster)) as client,
    ):
        run_admin(
            str(cluster.namesrv),
            lambda admin: create_topic(
                admin, TOPIC, queues=8, broker=None, cluster=DEFAULT_CLUSTER
            ),
            admin_of(cluster),
        )
        client.measure(ProduceJob((TOPIC,), 1024, shape, 0.0, 2.0, 1, ()))
        pids = {**dict.fromkeys(server_pids(cluster), "server"), client.pid: "client"}
        stacks = {pid: directory / f"{shape.batch}x{shape.in_flight}-{pid}.folded" for pid in pids}
        samplers = [sampled(pid, stacks[pid]) for pid in pids]
        before = {pid: cpu_seconds([pid]) for pid in pids}
        (done,) = client.measure(ProduceJob((TOPIC,), 1024, shape, 0.0, SECONDS, 1, ()))
        used = {pid: cpu_seconds([pid]) - before[pid] for pid in pids}
        for each in samplers:
            if each.wait() != 0:
                sys.exit(
                    "py-spy could not sample: see above; it needs the right to trace processes"
                )
    servers = sorted((pid for pid in pids if pids[pid] == "server"), key=used.__getitem__)
    named = {"leader": servers[-1], "follower": servers[-2], "client": client.pid}
    measured = {}
    for name, pid in named.items():
        lines = stacks[pid].read_text("utf-8").splitlines()
        measured[name] = Process(1e6 * used[pid] / done.messages, by_room(lines), lines)
    return measured


def print_shares(name: str, processes: Mapping[str, Process]) -> None:
    """A table with a row for each room that has one sample in a hundred somewhere."""
    print(f"\n{name}: percent of the time in Python functions")
    print(f"{'':40}" + "".join(f"{process:>10}" for process in processes))
    of_each = [each.rooms for each in processes.values()]
    rooms = {room for each in of_each for room in each if each[room] >= 1}
    for room in sorted(rooms, key=lambda room: -sum(each.get(room, 0.0) for each in of_each)):
        print(f"{room:40}" + "".join(f"{each.get(room, 0.0):10.1f}" for each in of_each))
    micros = "".join(f"{each.micros:10.2f}" for each in processes.values())
    print(f"{'all CPU time of a message, microseconds':40}{micros}")


def main(directory: Path) -> None:
    if shutil.which("py-spy") is None:
        sys.exit("step_cost needs py-spy on the path: pip install py-spy")
    for shape in LOAD_SHAPES:
        processes = measure(shape, directory)
        print_shares(shape.name, processes)
        print("\nof the leader's time in Python functions:")
        print_tree(call_tree(processes["leader"].stacks))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as temporary:
            main(Path(temporary))
