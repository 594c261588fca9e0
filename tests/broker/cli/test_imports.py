"""What a process loads before it serves or asks, by the names of modules.

Most of a start is imports. A library that only some settings, pages or commands need is loaded with
the first of them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

ADMIN_COMMANDS = ("health", "leader", "quota", "status", "topic")
"""They ask a cluster, and encode or decode no message."""

SELDOM = frozenset(
    {
        *("broker.bench", "broker.client", "broker.cluster_admin", "broker.console"),
        *("cryptography", "google.protobuf", "grpc", "jinja2", "numpy", "opentelemetry"),
        *("prometheus_client", "pyarrow", "rich", "store.verify", "yaml"),
    }
)
"""What no node needs to serve without gRPC and access control."""

SERVER = frozenset(
    {
        *("aiohttp", "broker.context", "broker.server", "broker.state"),
        *("crc32c", "dledger.node.node", "dledger.raft.core", "isal", "lz4", "store.log"),
    }
)

IMPORTS = """
import json, sys
from broker.cli.command_line import load_command
load_command(sys.argv[1])
{more}
print(json.dumps(list(sys.modules)))
"""


def loaded(command: str, more: str = "") -> set[str]:
    """The modules after the import of a command, and their packages."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(more=more), command],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_a_node_without_grpc_and_access_control_loads_neither_nor_what_few_requests_need() -> None:
    modules = loaded(
        "node", "import broker.cli.commands.node as node; node.import_server(grpc=False)"
    )

    assert {"broker.server.broker", "dledger.node.node", "aiohttp"} <= modules
    assert modules & SELDOM == set()


def test_forked_nodes_share_the_modules_of_the_grpc_port() -> None:
    modules = loaded("node", "import broker.cli.commands.node as node; node.import_server()")

    assert {"broker.grpc.port", "grpc"} <= modules
    assert modules & (SELDOM - {"google.protobuf", "grpc"}) == set()


def test_a_name_server_loads_no_broker_and_no_http() -> None:
    modules = loaded("namesrv")

    assert "broker.nameserver.server" in modules
    assert modules & {*SELDOM, "aiohttp", "broker.context", "dledger.node.node"} == set()


@pytest.mark.parametrize("command", ADMIN_COMMANDS)
def test_a_command_that_asks_a_cluster_loads_no_server_and_no_code_of_messages(
    command: str,
) -> None:
    modules = loaded(command)

    assert "broker.cluster_admin.admin_client" in modules
    seldom = (SELDOM - {"broker.cluster_admin"}) | SERVER
    assert modules & seldom == set()
