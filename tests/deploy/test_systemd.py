"""The units, and what servers tell systemd: over a real socket, as sd_notify(3) has it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.cli.local_cluster.local_cluster import design_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.system.service_manager import notify, watchdog_seconds
from tests.cluster.running_cluster import while_needed

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
COMMAND = "/opt/dledger/bin/dledger"
SECONDS = 60.0


class Manager:
    """systemd's end of the socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SECONDS)
        self._socket.bind(path)

    def next(self, name: str) -> dict[str, str]:
        """The fields of the next message that has this one."""
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            fields = dict(line.split("=", 1) for line in lines)
            if name in fields:
                return fields

    def heard_within(self, seconds: float) -> int:
        """How many messages come until there is silence for so long."""
        self._socket.settimeout(seconds)
        for count in itertools.count():
            try:
                self._socket.recv(4096)
            except TimeoutError:
                return count
        raise AssertionError

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    listening = Manager(path)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    yield listening
    listening.close()


@contextmanager
def server(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    # A pipe, as systemd's journal is none of the files that rotate.
    environ = {**os.environ, "WATCHDOG_USEC": "300000"}
    with while_needed(
        subprocess.Popen(
            [sys.executable, "-m", "broker", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
    ) as process:
        yield process


def lifecycle(manager: Manager, process: subprocess.Popen[bytes], status: str) -> None:
    ready = manager.next("READY")
    assert ready["READY"] == "1"
    assert status in ready["STATUS"]
    assert [manager.next("WATCHDOG")["WATCHDOG"] for _ in range(4)] == ["1"] * 4
    process.send_signal(signal.SIGHUP)
    assert int(manager.next("RELOADING")["MONOTONIC_USEC"]) > 0
    assert manager.next("READY")["READY"] == "1"
    process.terminate()
    assert manager.next("STOPPING")["STOPPING"] == "1"
    assert process.wait(SECONDS) == 0


@pytest.mark.processes
def test_a_name_server_tells_its_state(manager: Manager) -> None:
    with server("namesrv", "--port", "0") as process:
        lifecycle(manager, process, "the NameServer listens on 127.0.0.1:")


@pytest.mark.processes
def test_a_node_tells_its_state(manager: Manager, tmp_path: Path) -> None:
    design_cluster(tmp_path / "data", nodes=1, ports=Ports(0, 0, 0)).write()
    config = tmp_path / "data" / "broker-a" / "n0" / "node.toml"
    config.write_text(config.read_text().replace("drain_seconds = 35", "drain_seconds = 0"))
    with server("node", "--config", str(config)) as process:
        lifecycle(manager, process, "broker-a/n0 listens on 127.0.0.1:")


@pytest.mark.processes
def test_a_hangup_while_a_node_starts_is_taken_once_it_runs(
    manager: Manager, tmp_path: Path
) -> None:
    design_cluster(tmp_path / "data", nodes=1, ports=Ports(0, 0, 0)).write()
    config = tmp_path / "data" / "broker-a" / "n0" / "node.toml"
    with server("node", "--config", str(config)) as process:
        called = Path(f"/proc/{process.pid}/comm")
        while called.read_text() != "broker-a/n0\n":  # it has read its file, and imports the rest
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        # It says READY=1 once, when it listens: not at the end of the reload.
        assert "listens on" in manager.next("READY")["STATUS"]


@pytest.mark.processes
def test_a_server_that_hangs_is_silent(manager: Manager) -> None:
    with server("namesrv", "--port", "0") as process:
        manager.next("READY")
        manager.next("WATCHDOG")
        process.send_signal(signal.SIGSTOP)
        try:
            assert manager.heard_within(1.0) < 10  # those that were on their way
            assert manager.heard_within(1.0) == 0
        finally:
            process.send_signal(signal.SIGCONT)


def test_without_a_service_manager_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    assert not notify("READY=1")


def test_an_abstract_socket_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"dledger-test-{os.getpid()}"
    listening = Manager(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    assert notify("READY=1", "STATUS=well")
    assert listening.next("READY") == {"READY": "1", "STATUS": "well"}
    listening.close()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "many"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_it_names(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert watchdog_seconds(environ) == seconds


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", ["dledger-node@.service", "dledger-namesrv.service"])
def test_systemd_takes_the_unit(unit: str, tmp_path: Path) -> None:
    text = (UNITS / unit).read_text()
    assert COMMAND in text
    installed = tmp_path / unit.replace("@", "@broker-a-n0")
    installed.write_text(text.replace(COMMAND, str(Path(sys.executable).with_name("dledger"))))

    def verify() -> str:
        command = ["systemd-analyze", "verify", "--man=no", str(installed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return "".join(line for line in done.stderr.splitlines(True) if unit[:10] in line)

    assert verify() == ""
    installed.write_text(installed.read_text().replace("Type=notify", "Type=notfy"))
    assert "notfy" in verify()


@pytest.mark.parametrize("unit", ["dledger-node@.service", "dledger-namesrv.service"])
def test_a_unit_waits_for_readiness_and_watches(unit: str) -> None:
    lines = (UNITS / unit).read_text().splitlines()
    assert "Type=notify" in lines
    assert any(line.startswith("WatchdogSec=") for line in lines)
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines


@pytest.mark.parametrize("unit", ["dledger-node@.service", "dledger-namesrv.service"])
def test_what_a_unit_writes_is_for_its_user_alone(unit: str) -> None:
    lines = (UNITS / unit).read_text().splitlines()
    assert "UMask=0077" in lines
    assert ("StateDirectory=dledger" in lines) == ("StateDirectoryMode=0700" in lines)
