"""Which folder of the broker may know which: arrows point down, and nothing goes round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import PurePosixPath

import pytest

from tests.support.imports import ROOT, circles, imports_of

PAGE = ROOT / "docs" / "ARCHITECTURE.md"
FACE = "broker/client/__init__.py"
"""What programs import of the library: a room above the folders that it is made of."""

ROOMS: dict[str, frozenset[str]] = {
    room: frozenset(known.split())
    for room, known in {
        "limits": "",
        "change_notice": "",
        "errors": "",
        "leader_wait": "errors limits",
        "system": "limits",
        "filter": "errors limits",
        "topics_and_groups": "errors",
        "metrics": "limits topics_and_groups",
        "security": "errors system topics_and_groups",
        "quotas": "limits",
        # The replicated state, and what stores through it.
        "state": "limits topics_and_groups",
        "config": "quotas security state system",
        "certificates": "config system",
        "group_commit": "limits state topics_and_groups",
        # Frames, connections, and who is connected. Flows push to clients over them.
        "remoting/protocol": "limits",
        "remoting": "errors filter leader_wait limits remoting/protocol security",
        # The flows.
        "delivery": (
            "config errors filter group_commit limits metrics quotas state topics_and_groups"
        ),
        "scheduled": "delivery errors group_commit limits state topics_and_groups",
        "retry": "delivery errors group_commit limits metrics scheduled state topics_and_groups",
        "transactions": (
            "delivery errors group_commit limits remoting remoting/protocol scheduled state"
            " topics_and_groups"
        ),
        "ingest": (
            "config delivery errors group_commit limits metrics quotas retry scheduled state"
            " topics_and_groups transactions"
        ),
        "pop": (
            "delivery errors group_commit limits metrics quotas retry scheduled state"
            " topics_and_groups"
        ),
        "maintenance": (
            "config delivery errors group_commit limits security state topics_and_groups"
        ),
        # All parts of one broker by name: what the wires and the answers to operators reach.
        "context": (
            "config delivery group_commit ingest maintenance metrics pop quotas remoting"
            " remoting/protocol"
            " scheduled security state transactions"
        ),
        "admin": (
            "config context delivery errors limits metrics remoting remoting/protocol scheduled"
            " state topics_and_groups"
        ),
        "prometheus": "admin context delivery limits metrics topics_and_groups",
        # The wires.
        "remoting/processors": (
            "admin config context delivery errors filter group_commit ingest limits maintenance"
            " metrics pop quotas remoting remoting/protocol scheduled security state"
            " topics_and_groups"
        ),
        "http": (
            "admin config context delivery errors group_commit ingest leader_wait limits"
            " metrics prometheus quotas remoting remoting/protocol security"
        ),
        "grpc/protocol": "",
        "grpc": (
            "config context delivery errors filter grpc/protocol ingest leader_wait limits pop"
            " quotas remoting remoting/protocol security system topics_and_groups"
        ),
        # OpenTelemetry: the doors of ingest and delivery, traced.
        "tracing": "delivery errors group_commit ingest quotas scheduled",
        # One broker, assembled; and one NameServer.
        "server": (
            "admin change_notice config context delivery errors group_commit grpc http ingest"
            " limits maintenance metrics pop prometheus quotas remoting remoting/processors"
            " remoting/protocol scheduled security state system topics_and_groups tracing"
            " transactions"
        ),
        "nameserver": "http limits metrics prometheus remoting remoting/protocol security system",
        # The library.
        "client": "limits remoting/protocol security",
        "client/route": "client remoting remoting/protocol",
        "client/consumer": (
            "client client/route filter remoting remoting/protocol system topics_and_groups"
        ),
        "client/producer": (
            "client client/route remoting remoting/protocol system topics_and_groups"
        ),
        "client/__init__": "client client/consumer client/producer security",
        "bench": (
            "client client/consumer client/producer filter grpc/protocol remoting"
            " remoting/protocol security system"
        ),
        # The failure of a command, and what is asked of a cluster.
        "exit_codes": "",
        "command_error": "exit_codes",
        "cluster_admin": (
            "admin client client/consumer client/producer command_error filter limits quotas"
            " remoting remoting/protocol security topics_and_groups"
        ),
        # What all command lines share; the console reads what is typed by the same rules.
        "cli/terminal": (
            "client command_error delivery exit_codes remoting/protocol security system"
            " topics_and_groups"
        ),
        # The console, which a server loads by name when somebody looks at it.
        "console/visits": (
            "client client/producer cluster_admin command_error config context http limits"
            " remoting remoting/protocol security"
        ),
        "console/actions": (
            "cli/terminal client cluster_admin command_error config console/visits limits"
            " quotas topics_and_groups"
        ),
        "console/pages": (
            "admin cli/terminal client cluster_admin command_error console/actions"
            " console/visits http limits metrics quotas remoting/protocol topics_and_groups"
        ),
        "console": "admin command_error console/actions console/pages console/visits context http",
        # The command line.
        "cli/local_cluster": (
            "certificates cli/terminal cluster_admin command_error config exit_codes"
            " remoting/protocol system"
        ),
        "cli/benchmark": "bench cli/local_cluster cli/terminal cluster_admin command_error",
        "cli/backup": "admin cli/local_cluster cli/terminal cluster_admin command_error config",
        "cli/mirror": "client client/producer cluster_admin command_error remoting/protocol",
        "cli/commands": (
            "admin bench certificates cli/backup cli/benchmark cli/local_cluster cli/mirror"
            " cli/terminal client client/consumer client/producer cluster_admin command_error"
            " config delivery exit_codes filter grpc limits nameserver quotas remoting/protocol"
            " security server system topics_and_groups"
        ),
        "cli": "cli/terminal exit_codes",
        "__main__": "cli",
    }.items()
}
"""Of each room, from the lowest to the highest, the rooms that it may know. A room is a folder of
``broker/`` without the folders in it, or a file beside the folders."""

SERVERS = (
    "broker/server/broker_server.py",
    "broker/nameserver/server.py",
    "broker/cli/commands/node.py",
    "broker/cli/commands/namesrv.py",
)


def room_of(file: str) -> str:
    inside = PurePosixPath(file).relative_to("broker")
    if file == FACE or len(inside.parts) == 1:
        return str(inside.with_suffix(""))
    return str(inside.parent)


@cache
def arrows() -> Mapping[str, Mapping[str, str]]:
    """Of each room the other rooms that it knows, and of each of these one import that says so."""
    found: dict[str, dict[str, str]] = {room: {} for room in ROOMS}
    for file, imported in imports_of("broker").items():
        room = room_of(file)
        for other in imported:
            if other.startswith("broker/") and room_of(other) != room:
                found.setdefault(room, {})[room_of(other)] = f"{file} -> {other}"
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_what_the_table_says_and_nothing_else(room: str) -> None:
    known = arrows()[room]
    assert not {name: arrow for name, arrow in known.items() if name not in ROOMS[room]}
    assert not ROOMS[room] - known.keys(), "the table lets it know more than it does"


def test_the_table_has_every_room_and_points_down_alone() -> None:
    lower: set[str] = set()
    for room, known in ROOMS.items():
        assert known <= lower, f"{room} knows {known - lower}, which do not lie below it"
        lower.add(room)
    assert {room_of(file) for file, imported in imports_of("broker").items() if imported} <= lower


def test_the_page_of_the_architecture_has_the_rooms_in_this_order() -> None:
    _, _, table = PAGE.read_text(encoding="utf-8").partition("\n| Room | Does |\n| --- | --- |\n")
    rows = takewhile(lambda line: line.startswith("| "), table.splitlines())
    cells = [row.split(" | ")[0] for row in rows]
    assert re.findall(r"`([^`]+?)(?:/|\.py)`", "\n".join(cells)) == list(ROOMS)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert not circles(imports_of("broker"))


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_never_loads_the_client_library(server: str) -> None:
    reached, waiting = {server}, [server]
    while waiting:
        more = imports_of("broker").get(waiting.pop(), frozenset()) - reached
        reached |= more
        waiting += more
    assert not [file for file in reached if file.startswith("broker/client/")]


def test_the_data_source_knows_the_store_and_not_the_broker() -> None:
    known = {other for imported in imports_of("spark").values() for other in imported}
    assert not [file for file in known if file.startswith(("broker/", "dledger/"))]
