"""Machines with the addresses 127.0.0.2 to .6, on which the commands of docs/operations.md are run.

Each has a directory in the place of its root. A shell runs the commands of the page. Two commands
are our own: ``scp`` copies to the directory of a machine, and ``systemctl`` starts what the unit
says, with a socket for sd_notify(3).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from fcntl import LOCK_EX, flock
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir
from textwrap import dedent
from typing import NamedTuple

import pytest

from tests.cluster.running_cluster import while_needed
from tests.deploy.test_systemd import Manager

ROOT = Path(__file__).parents[2]
DLEDGER = Path(sys.executable).with_name("dledger")
COMMAND_SECONDS = 120.0
MACHINES = tuple(f"127.0.0.{number}" for number in range(2, 7))

NOT_HERE = ("useradd", "python3 -m venv", "/opt/dledger/bin/pip", "install -d")
"""The wheel is installed by another test. There is one user here."""

SCP = """#!/bin/sh
for last; do :; done
host=${last%%:*} directory=${last#*:}
while [ $# -gt 1 ]; do cp "$1" "$MACHINES/$host$directory"; shift; done
"""


class Block(NamedTuple):
    """A block of commands. ``words``: the text before it."""

    words: str
    language: str
    text: str


def section(heading: str) -> dict[str, list[Block]]:
    """The blocks below each heading within a section of docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text()
    text = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    text = text.replace("10.0.0.", "127.0.0.")
    found: dict[str, list[Block]] = {}
    title, words = "", ""
    lines = iter(text.splitlines(True))
    for line in lines:
        if line.startswith("### "):
            title, words = line[4:].strip(), ""
            found[title] = []
        elif line.lstrip().startswith("```"):
            inside = dedent("".join(takewhile(lambda each: each.strip() != "```", lines)))
            found.setdefault(title, []).append(Block(words, line.strip()[3:], inside))
            words = ""
        else:
            words += line
    return found


class Machine:
    """A machine. Its files lie below ``root``."""

    def __init__(self, root: Path, number: int, running: ExitStack) -> None:
        self.root = root
        self.number = number
        self.units: dict[str, subprocess.Popen[bytes]] = {}
        self.managers: dict[str, Manager] = {}
        self._running = running
        (root / "etc" / "dledger" / "security").mkdir(parents=True)
        (root / "var" / "lib" / "dledger").mkdir(parents=True)

    def local(self, text: str) -> str:
        """A text with its paths changed to those below ``root``."""
        text = text.replace("/opt/dledger/bin/dledger", str(DLEDGER))
        return re.sub(r"/(?=(etc|var/lib)/dledger)", f"{self.root}/", text)

    def write(self, path: str, text: str) -> None:
        name = f"n{self.number}"
        own = {"n0": name, "n3": name, MACHINES[0]: MACHINES[self.number]}
        lines = []
        for line in text.splitlines():
            changed = line
            if "# of this machine" in line:
                for old, new in own.items():
                    changed = changed.replace(f'"{old}"', f'"{new}"')
                assert changed != line or self.number in {0, 3}
            lines.append(self.local(changed))
        Path(self.local(path)).write_text("\n".join(lines) + "\n")

    def shell(self, line: str) -> None:
        """Runs one line of the page."""
        if line.startswith(NOT_HERE):
            return
        if line.startswith("systemctl"):
            self._systemctl(*shlex.split(line)[1:])
        else:
            run(self.local(line), self.root)

    def follow(self, text: str) -> None:
        """Runs a block of the page."""
        for line in text.splitlines():
            self.shell(line)

    def kill(self, name: str) -> None:
        """As if the power had failed."""
        self.units[name].kill()
        self.units[name].wait(COMMAND_SECONDS)
        self.managers[name].close()

    def ended(self, name: str) -> int:
        """The exit code of a unit that ends by itself."""
        return self.units[name].wait(COMMAND_SECONDS)

    def _systemctl(self, verb: str, *words: str) -> None:
        if verb in {"reload", "restart"}:
            for name in words:
                getattr(self, f"_{verb}")(name)
        elif verb == "enable":
            for name in words[1:]:
                self._start(name)
            for name in words[1:]:
                assert self.managers[name].next("READY")["READY"] == "1"
        else:
            assert verb in {"daemon-reload", "disable"}

    def _unit(self, name: str) -> dict[str, str]:
        template, _, instance = name.partition("@")
        file = f"{template}@.service" if instance else f"{template}.service"
        text = (ROOT / "deploy" / "systemd" / file).read_text().replace("%i", instance)
        return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))

    def _start(self, name: str) -> None:
        unit = self._unit(name)
        # A path below a temporary directory may be too long for a socket.
        address = f"dledger-{os.getpid()}-{self.number}-{name}"
        manager = Manager(f"\0{address}")
        self._running.callback(manager.close)
        self.managers[name] = manager
        # systemd gives the journal, a socket, which no server rotates.
        log = self._running.enter_context((self.root / f"{name}.log").open("wb"))
        environ = {
            "NOTIFY_SOCKET": f"@{address}",
            "WATCHDOG_USEC": str(int(unit["WatchdogSec"]) * 1_000_000),
        }
        process = subprocess.Popen(
            shlex.split(self.local(unit["ExecStart"])),
            env={**clean_environment(), **environ},
            stdout=log,
            stderr=log,
            cwd="/",
        )
        self.units[name] = self._running.enter_context(while_needed(process))

    def _reload(self, name: str) -> None:
        command = self._unit(name)["ExecReload"].replace("$MAINPID", str(self.units[name].pid))
        run(command, self.root)
        manager = self.managers[name]
        assert manager.next("RELOADING")["RELOADING"] == "1"
        assert manager.next("READY")["READY"] == "1"

    def _restart(self, name: str) -> None:
        self.units[name].terminate()
        assert self.managers[name].next("STOPPING")["STOPPING"] == "1"
        assert self.units[name].wait(COMMAND_SECONDS) == 0
        self.managers[name].close()
        self._start(name)
        assert self.managers[name].next("READY")["READY"] == "1"


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("DLEDGER_", "NAMESRV"))}


def run(line: str, directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-euc", line],
        cwd=directory,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def _one_test_at_a_time(running: ExitStack) -> None:
    """The page's addresses and ports are the same for all tests, and their workers."""
    lock = running.enter_context((Path(gettempdir()) / "dledger-test-machines.lock").open("a"))
    flock(lock, LOCK_EX)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Machine]]:
    """The machines. The test starts those that it uses; all their processes end with it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scp").write_text(SCP)
    (tools / "scp").chmod(0o755)
    (tools / "dledger").symlink_to(DLEDGER)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINES", str(tmp_path))
    with ExitStack() as running:
        _one_test_at_a_time(running)
        yield [Machine(tmp_path / host, n, running) for n, host in enumerate(MACHINES)]


def follow_deploy(machines: list[Machine], directory: Path) -> dict[str, list[Block]]:
    """Brings up a cluster on these machines. Returns the section of the page."""
    blocks = section("Deploy")
    for title in ("The program", "Certificates and secrets", "Settings", "Start"):
        for words, language, text in blocks[title]:
            if language == "toml":
                (path,) = re.findall(r"`(/etc/dledger/\S+)`", words)
                for machine in machines:
                    machine.write(path, text)
            elif "On your own machine" in words:
                run(text, directory)
            else:
                for line in text.splitlines():
                    for machine in machines:
                        machine.shell(line)
    return blocks


def until_healthy(health: str, directory: Path) -> None:
    ends_at = time.monotonic() + COMMAND_SECONDS
    while True:
        try:
            run(health, directory)
        except AssertionError:
            assert time.monotonic() < ends_at
            time.sleep(0.2)
        else:
            return
