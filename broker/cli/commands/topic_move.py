"""``dledger topic move``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import click

from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.numbers import seconds
from broker.cli.terminal.options import (
    ask_first,
    cluster_options,
    dry_run_option,
    yes_option,
)
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import run_on_leaders
from broker.cluster_admin.topic_move import Place, Remaining, TopicMove, Waiting
from broker.command_error import CommandError
from store.counted import counted

SETTLE_SECONDS = 35.0
"""Pace: clients of RocketMQ ask for routes every 30 s. Until then they do not know the target, and
send to the source; that could create a deleted topic there again."""

LOOK_SECONDS = 1.0
"""Pace: the seconds between two checks of the messages that remain."""


EXAMPLES = """\
  dledger topic move orders --from broker-a --to broker-b --dry-run
  dledger topic move orders --from broker-a --to broker-b --wait
  dledger topic move ledger --from broker-a --to broker-b --in-order --wait
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--from", "source", metavar="GROUP", required=True, help="The broker group that it leaves."
)
@click.option("--to", "target", metavar="GROUP", required=True, help="The broker group it goes to.")
@click.option(
    "--in-order/--no-in-order",
    default=None,
    help="The topic takes no messages until the source is empty, so none is consumed before an "
    "earlier one (default: as the topic's order says).",
)
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait until consumers have read the source. Without it, run the command again later.",
)
@click.option(
    "--settle",
    type=seconds,
    metavar="SECONDS",
    default=SETTLE_SECONDS,
    show_default=True,
    help="How long clients have to learn of a step: before the source is closed (not "
    "with --in-order), and before the topic is deleted there.",
)
@click.argument("name", type=topic_name)
@dry_run_option
@yes_option
@cluster_options
def move(
    *,
    name: str,
    source: str,
    target: str,
    in_order: bool | None,
    waits: bool,
    settle: float,
    dry_run: bool,
    yes: bool,
    namesrv: str,
    output: Output,
) -> None:
    """Move a topic from one broker group to another; a repeated run continues.

    The target gets the topic, the source takes no more messages, consumers read its messages, and
    the topic is deleted at the source. Exit code 1 while consumers have not read all. At the end
    the target takes messages, even if the source did not.
    """
    topic_move = TopicMove(name, source, target, in_order=in_order)
    at_source, at_target, remaining = run_on_leaders(namesrv, topic_move.look)
    if dry_run:
        waiting_there = run_on_leaders(namesrv, topic_move.waiting)
        _tell_plan(topic_move, at_source, at_target, (remaining, waiting_there), output)
        return
    tell = _teller(output)
    if at_source.config:
        if run_on_leaders(namesrv, topic_move.open_target):
            tell(f"created {name} on {target}")
        # An earlier run may have been interrupted in any wait, so each run waits.
        if at_source.writable and not topic_move.keeps_order(at_source, at_target):
            with waiting("producers learn of the target"):
                time.sleep(settle)
        if run_on_leaders(namesrv, topic_move.close_source):
            tell(f"{source} takes no more messages of {name}")
        settled_at = time.monotonic() + settle
        drained = partial(_drained, topic_move, name, source, namesrv, waits=waits, yes=yes)
        drained()
        with waiting(f"producers learn that {source} takes no more messages"):
            time.sleep(max(0.0, settled_at - time.monotonic()))
        messages = counted(drained().messages, "message")
        ask_first(f"Delete {name} and its {messages} on {source}", yes=yes)
        drained()  # more messages may have become due before the answer
    run_on_leaders(namesrv, topic_move.finish)
    if not output.document({"topic": name, "from": source, "to": target, "moved": True}):
        print(f"moved {name} from {source} to {target}")


def _teller(output: Output) -> Callable[[str], None]:
    """Prints a step, if the output is for people."""
    return print if output is Output.TABLE else lambda _text: None


def _drained(
    topic_move: TopicMove, name: str, source: str, namesrv: str, *, waits: bool, yes: bool
) -> Remaining:
    """Waits until consumers have read the source. Raises :class:`CommandError` if they have not and
    ``waits`` is False, or if messages would be lost and ``yes`` is False."""
    while True:
        remaining = run_on_leaders(namesrv, topic_move.remaining)
        if remaining.drained and not yes:
            waiting_there = run_on_leaders(namesrv, topic_move.waiting)
            # Asked again: a message may have become due between the two, and be in neither.
            remaining = run_on_leaders(namesrv, topic_move.remaining)
            if remaining.drained:
                _refuse_loss(name, source, remaining, waiting_there)
        if remaining.drained:
            return remaining
        behind = ", ".join(f"{group} {lag}" for group, lag in remaining.lags.items() if lag)
        if not waits:
            raise CommandError(
                f"not all of {name} is consumed on {source}: {behind}; run this again later, or "
                "with --wait"
            )
        with waiting(f"still to consume on {source}: {behind}"):
            time.sleep(LOOK_SECONDS)


def _refuse_loss(name: str, source: str, remaining: Remaining, waiting_there: Waiting) -> None:
    if not remaining.lags and remaining.messages:
        raise CommandError(
            f"no group has an offset in {name} on {source}, and its "
            f"{counted(remaining.messages, 'message')} would be deleted unread; --yes deletes them"
        )
    if waiting_there.messages:
        raise CommandError(
            f"{waiting_there.messages} scheduled messages or open transactions of {name} wait on "
            f"{source} and would be lost; run this again later, or with --yes"
        )
    if waiting_there.unread:
        raise CommandError(
            f"{waiting_there.unread} scheduled messages or open transactions wait on {source}; it "
            f"is unknown whether they are of {name} and would be lost; run "
            "this again later, or with --yes if it has none"
        )


def _tell_plan(
    topic_move: TopicMove,
    source: Place,
    target: Place,
    left: tuple[Remaining, Waiting],
    output: Output,
) -> None:
    remaining, waiting_there = left
    in_order = topic_move.keeps_order(source, target)
    document = {
        "in_order": in_order,
        "from": asdict(source),
        "to": asdict(target),
        "remaining": asdict(remaining),
        "waiting": asdict(waiting_there),
    }
    if output.document(document):
        return
    closed = " without taking messages yet" if in_order else ""
    if source.config and not target.config:
        print(f"would create the topic on {target.group}{closed}")
    if source.writable:
        print(f"would take no more messages on {source.group}")
    if not target.writable and (in_order or target.config):
        print(f"would take messages on {target.group} once {source.group} is read")
    for group, lag in remaining.lags.items():
        print(f"would wait for {group}, which has {counted(lag, 'message')} to consume")
    if waiting_there.messages:
        print(
            f"would wait for {waiting_there.messages} scheduled messages and open transactions of "
            f"the topic on {source.group}, or delete them with --yes"
        )
    if waiting_there.unread:
        print(
            f"cannot know how many of {waiting_there.unread} other scheduled messages and open "
            f"transactions on {source.group} are of the topic"
        )
    for group in remaining.broadcast:
        print(f"cannot know how far {group} is: its members keep their offsets")
    if source.config:
        print(f"would delete {counted(remaining.messages, 'message')} on {source.group}")
