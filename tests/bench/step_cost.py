"""What a message costs in each room of the house, as microseconds of CPU time.

``python -m tests.bench.step_cost [DIRECTORY]`` starts three nodes, sends messages, and samples the
stacks of the leader, of a follower and of the client meanwhile. It needs py-spy on the path
(``pip install py-spy``), and leaves a file of stacks for each process in DIRECTORY, from which
https://www.speedscope.app or flamegraph.pl draw a flame graph.

A sample counts for the innermost function of this project, so what a library does counts for its
caller. Shares of samples are turned into time by the CPU time of the process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

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
EVENT_LOOP, BESIDES = "event loop: sockets, timers", "Python and libraries besides"


def room_of(stack: str) -> str:
    """The folder of the innermost function of this project in a stack ``outer (file:line);...``.

    Checkpoints are a room of their own, because they use those of others. Below the functions that
    run the event loop nothing of it is seen: what it does itself, it does compiled.
    """
    frames = [frame.rpartition("(")[2].partition(":")[0] for frame in stack.split(";")]
    if any(path.endswith(CHECKPOINTS) for path in frames):
        return "checkpoints, durable mark, room ahead"
    if frames[-1].endswith("asyncio/runners.py"):
        return EVENT_LOOP
    for path in reversed(frames):
        parts = path.split("/")
        for place, part in enumerate(parts):
            if part in ROOMS and place + 2 < len(parts):
                return "/".join(parts[place : place + 2])
    return BESIDES


def by_room(stacks: Iterable[str], cpu_micros: float) -> dict[str, float]:
    """Divides a CPU time among rooms. Each line is a stack and the number of its samples."""
    samples: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        samples[room_of(stack)] += int(count)
    total = max(1, samples.total())
    return {room: cpu_micros * count / total for room, count in samples.most_common()}


def sampled(pid: int, output: Path) -> subprocess.Popen[bytes]:
    """Samples a process while the load runs."""
    rate, seconds = str(SAMPLES_A_SECOND), str(int(SECONDS) - 1)
    command = ["py-spy", "record", "--nonblocking", "--rate", rate, "--duration", seconds]
    return subprocess.Popen(
        [*command, "--format", "raw", "--output", str(output), "--pid", str(pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def measure(shape: LoadShape, directory: Path) -> dict[str, Mapping[str, float]]:
    """For the leader, a follower and the client: the microseconds of a message by room."""
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
            each.wait()
    servers = sorted((pid for pid in pids if pids[pid] == "server"), key=used.__getitem__)
    named = {"leader": servers[-1], "follower": servers[-2], "client": client.pid}
    return {
        name: by_room(
            stacks[pid].read_text(encoding="utf-8").splitlines(), 1e6 * used[pid] / done.messages
        )
        for name, pid in named.items()
    }


def print_costs(name: str, costs: Mapping[str, Mapping[str, float]]) -> None:
    """A table with a row for each room."""
    print(f"\n{name}, microseconds a message")
    print(f"{'':40}" + "".join(f"{process:>10}" for process in costs))
    rooms = sorted(
        {room for each in costs.values() for room in each},
        key=lambda room: -sum(each.get(room, 0.0) for each in costs.values()),
    )
    for room in rooms:
        print(f"{room:40}" + "".join(f"{each.get(room, 0.0):10.2f}" for each in costs.values()))
    print(f"{'all':40}" + "".join(f"{sum(each.values()):10.2f}" for each in costs.values()))


def main(directory: Path) -> None:
    if shutil.which("py-spy") is None:
        sys.exit("step_cost needs py-spy on the path: pip install py-spy")
    for shape in LOAD_SHAPES:
        print_costs(shape.name, measure(shape, directory))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as temporary:
            main(Path(temporary))
