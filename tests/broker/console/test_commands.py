"""The command that the console shows for a change is one that `dledger` takes."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import click
import pytest

from broker.cli.command_line import load_command
from broker.command_error import UsageError
from broker.console.actions.action import Values
from broker.console.actions.members import Remove
from broker.console.site import ACTIONS

VISIT: Any = SimpleNamespace(namesrv="10.0.0.9:9876")
ID = "7F00000100002A9F0000000000001000"

FILLED: dict[str, list[Values]] = {
    "topic-create": [
        {"topic": "orders", "queues": "8"},
        {"topic": "o", "queues": "1", "perm": "r", "order": "yes", "type": "FIFO", "cluster": "C"},
    ],
    "topic-alter": [
        {"topic": "orders", "queues": "2", "fewer": "1", "order": "no", "perm": "none"}
    ],
    "topic-delete": [{"topic": "orders"}],
    "message-send": [
        {
            "topic": "orders",
            "body": "it's one",
            "tag": "t",
            "key": "a b",
            "properties": "a=b=c\nd=",
        },
        {"topic": "orders", "body": "two\nlines", "queue": "3", "deliver_at": "10m"},
        {"topic": "orders", "body": "AAE=", "form": "base64"},
    ],
    "group-create": [{"group": "billing", "retry_max": "5", "consume": "no", "broadcast": "yes"}],
    "group-alter": [{"group": "billing", "consume": "yes"}],
    "group-reset": [
        {"group": "billing", "topic": "orders", "to": "latest"},
        {"group": "billing", "topic": "orders", "to": "1h"},
    ],
    "group-delete": [{"group": "billing"}],
    "dead-resend": [
        {"group": "billing"},
        {"group": "billing", "id": ID, "to": "orders"},
        {"group": "billing", "last": "5"},
    ],
    "dead-purge": [{"group": "billing"}],
    "quota-set": [
        {"type": "topic", "name": "clicks", "produce_bytes": "1MiB"},
        {"type": "client", "name": "*", "consume_messages": "5", "group": "broker-a"},
    ],
    "quota-unset": [
        {"type": "topic", "name": "clicks"},
        {"type": "client", "name": "*", "group": "broker-a"},
    ],
    "member-transfer": [{"group": "broker-a", "node": "n1"}],
    "member-add": [
        {"group": "broker-a", "node": "n3", "address": "10.0.0.4:10911"},
        {"group": "broker-a", "node": "n3", "address": "10.0.0.4:10911", "learner": "1"},
    ],
    "member-promote": [{"group": "broker-a", "node": "n3"}],
    "member-remove": [{"group": "broker-a", "node": "n3"}],
    "member-replace": [{"group": "broker-a", "node": "n2", "address": "10.0.0.4:10911"}],
}

BAD: list[tuple[str, Values]] = [
    ("topic-create", {}),
    ("topic-create", {"topic": "a b"}),
    ("topic-create", {"topic": "a", "queues": "0"}),
    ("topic-create", {"topic": "a", "queues": "1e3"}),
    ("topic-create", {"topic": "a", "perm": "x"}),
    ("topic-create", {"topic": "a", "type": "x"}),
    ("message-send", {"topic": "a", "properties": "nothing"}),
    ("message-send", {"topic": "a", "queue": "-1"}),
    ("message-send", {"topic": "a", "deliver_at": "soon"}),
    ("group-create", {"group": "a b"}),
    ("group-create", {"group": "a", "retry_max": "2147483648"}),
    ("group-create", {"group": "a", "retry_max": "-1"}),
    ("group-reset", {"group": "a", "topic": "b", "to": "yesterday"}),
    ("group-reset", {"group": "a", "to": "latest"}),
    ("dead-resend", {"group": "a", "id": "12"}),
    ("dead-resend", {"group": "a", "last": "0"}),
    ("quota-set", {"type": "topic", "name": "clicks"}),
    ("quota-set", {"type": "topic", "name": "clicks", "produce_messages": "0"}),
    ("quota-set", {"type": "topic", "name": "clicks", "produce_bytes": "much"}),
    ("quota-set", {"type": "topic", "produce_bytes": "1MiB"}),
    ("quota-set", {"type": "planet", "name": "mars", "produce_bytes": "1MiB"}),
    ("quota-unset", {"type": "client", "name": "a b"}),
    ("member-add", {"group": "a", "node": "x", "address": "1.2.3.4:5"}),
    ("member-add", {"group": "a", "node": "n3", "address": "http://x"}),
]


def parsed(words: list[str]) -> click.Context:
    """What a command makes of its arguments, without doing it. Raises for what it does not take."""
    first, *rest = words
    command = load_command(first)
    if isinstance(command, click.Group):
        name, *rest = rest
        command = command.commands[name]
    return command.make_context(command.name, rest)


def test_every_change_is_tried() -> None:
    assert FILLED.keys() == ACTIONS.keys()


@pytest.mark.parametrize(
    ("name", "values"), [(name, each) for name, filled in FILLED.items() for each in filled]
)
def test_the_command_is_one_that_dledger_takes(name: str, values: Values) -> None:
    words = shlex.split(ACTIONS[name].command(VISIT, values).replace("| ", "; "))
    told = words[words.index("dledger") + 1 :]
    context = parsed(told)
    assert context.params["namesrv"] == "10.0.0.9:9876"
    assert not context.args


@pytest.mark.parametrize(("name", "values"), BAD)
def test_what_cannot_be_is_refused_before_anything_is_asked(name: str, values: Values) -> None:
    with pytest.raises(UsageError):
        ACTIONS[name].arguments(values)


def test_what_is_lost_is_marked() -> None:
    lost = {name for name, action in ACTIONS.items() if action.danger}
    assert lost == {
        *("topic-delete", "group-delete", "group-reset"),
        *("dead-purge", "member-remove", "member-replace"),
    }


def test_who_takes_a_node_out_learns_when_its_process_does_not_end() -> None:
    members = {"voters": ["n0", "n1", "n2"], "leader": "n0"}
    asked = Remove().question(members, {"group": "broker-a", "node": "n2"})
    assert "one that is down or cut off now may never learn: stop it" in asked.note
