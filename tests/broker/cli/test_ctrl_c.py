"""Ctrl-C before a command has begun, while its modules are being imported: no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

INTERRUPTED = """\
import os, runpy, signal, sys

class Interrupt:
    \"\"\"Ctrl-C in the moment in which a module is looked for.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name == imported:
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
imported, module = sys.argv[1:3]
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__", alter_sys=False)
"""


@pytest.mark.parametrize(
    ("imported", "program"),
    [
        ("click", "broker status"),
        ("broker.cli.command_line", "broker status"),
        ("broker.cli.terminal.standard_streams", "broker status"),
        ("broker.cli.commands.status", "broker status"),
        ("asyncio", "broker status"),
        ("uvloop", "broker produce orders"),
        ("broker.cli.terminal.name_arguments", "broker topic list"),
        ("importlib.metadata", "broker --version"),
        ("click", "simulator run --seeds 1-1"),
        ("simulator.cli.main", "simulator run --seeds 1-1"),
        ("simulator.worlds.cluster", "simulator run --seeds 1-1"),
        ("click", "spark audit"),
        ("spark.cli", "spark audit"),
        ("spark.audit.audit", "spark audit /nowhere"),
    ],
)
def test_ctrl_c_while_modules_are_imported_ends_without_a_word(imported: str, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, imported, *program.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == "interrupted\n"
    assert done.returncode in (130, -2)
