"""``dledger group``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from broker.cli.cluster_admin.admin_client import (
    AdminClient,
    NoTopicError,
    RefusedError,
    run_on_leaders,
)
from broker.cli.cluster_admin.consumer_group_views import (
    ConsumerGroupView,
    UnknownGroupError,
    find_group,
    group_names,
)
from broker.cli.commands.topic import QueueView, view_queues
from broker.cli.terminal.name_arguments import group_name, topic_name
from broker.cli.terminal.options import json_option, namesrv_option
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time
from broker.client.consumer.offset_reset_body import reset_offsets as reset_offsets_of
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.java_json import encode_json
from broker.topics_and_groups import dead_letter_topic

EARLIEST, LATEST = "earliest", "latest"
GROUP_IS_AWAY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


command = Group()
name_argument = click.argument("name", type=group_name)


@command.command("list", examples="  dledger group list\n")
@namesrv_option
@json_option
def list_groups(namesrv: str, output: Output) -> None:
    """The groups with a configuration, members or offsets."""
    groups = run_on_leaders(namesrv, group_names)
    if not output.document({"groups": groups}):
        print("\n".join(groups) or "no group has been seen yet")


@command.command(examples="  dledger group describe printers\n")
@name_argument
@namesrv_option
@json_option
def describe(name: str, namesrv: str, output: Output) -> None:
    """A group's members, offsets and lag."""
    group = run_on_leaders(namesrv, lambda admin: find_group(admin, name))
    if output.document(group_json(group)):
        return
    members = group.members
    print(f"{len(members)} member(s) connected{': ' if members else ''}{', '.join(members)}")
    print(f"{group.lag} message(s) to consume")
    print_table(
        ("TOPIC", "BROKER", "QUEUE", "OFFSET", "MAX", "LAG"),
        [(q.topic, q.broker, q.queue_id, q.offset, q.max_offset, q.lag) for q in group.queues],
    )
    for topic in group.broadcast:
        print(f"{topic}: broadcast, so its offsets are the members' own")


def group_json(group: ConsumerGroupView) -> dict[str, Any]:
    """The document that ``dledger group describe --json`` prints."""
    return {
        "group": group.name,
        "members": group.members,
        "lag": group.lag,
        "queues": [asdict(queue) for queue in group.queues],
        "broadcast": group.broadcast,
    }


@command.command(
    examples="""\
  dledger group reset-offset printers --topic orders --to earliest
  dledger group reset-offset printers --topic orders --to 1790000000000    (milliseconds)
  dledger group reset-offset printers2 --topic orders --to latest --create     a new group
"""
)
@name_argument
@click.option("--topic", metavar="T", type=topic_name, required=True)
@click.option(
    "--to",
    "target",
    type=place_in_time,
    metavar=f"earliest|latest|{TIME}",
    required=True,
    help=f"{TIME_HELP}.",
)
@click.option("--create", is_flag=True, help="Make the group if no broker knows it.")
@namesrv_option
@json_option
def reset_offset(
    *, name: str, topic: str, target: str | int, create: bool, namesrv: str, output: Output
) -> None:
    """Move a group in a topic, whether it is consuming or not."""

    async def reset(admin: AdminClient) -> dict[tuple[str, int], int]:
        try:
            await find_group(admin, name, hint="; --create makes a new one")
        except UnknownGroupError:
            if not create:
                raise
            await _create(admin, name, topic)
        return await reset_offsets(admin, name, topic, target)

    offsets = run_on_leaders(namesrv, reset)
    queues = [{"broker": b, "queue_id": q, "offset": o} for (b, q), o in offsets.items()]
    if not output.document({"group": name, "topic": topic, "queues": queues}):
        rows = [(broker, queue_id, offset) for (broker, queue_id), offset in offsets.items()]
        print_table(("BROKER", "QUEUE", "OFFSET"), rows)


@command.command(examples="  dledger group delete printers\n")
@name_argument
@namesrv_option
@json_option
def delete(name: str, namesrv: str, output: Output) -> None:
    """Delete a group, its offsets and its retries; its dead letters stay."""
    found: list[ConsumerGroupView] = []

    async def work(admin: AdminClient) -> tuple[ConsumerGroupView, bool]:
        if not found:  # of a second try, the first may have deleted it
            found.append(await find_group(admin, name))
        (group,) = found
        masters = await admin.masters()
        for address in (masters[broker] for broker in group.masters):
            await admin.ask(
                address,
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                {"groupName": name, "removeOffset": True},
            )
        return group, await _has_dead_letters(admin, name)

    group, dead_letters = run_on_leaders(namesrv, work)
    brokers = list(group.masters.values())
    document = {"group": name, "brokers": brokers, "members": group.members}
    if not output.document(document | {"dead_letters": dead_letters}):
        print(f"deleted {name} on {', '.join(brokers)}")
    if dead_letters:
        topic = dead_letter_topic(name)
        print(
            f"its dead letters stay: `dledger consume '{topic}' --group NAME` reads them, "
            f"`dledger topic delete '{topic}'` deletes them",
            file=sys.stderr,
        )
    if group.members:
        print(
            f"{len(group.members)} member(s) are connected still and make it anew with their next "
            f"heartbeat: {', '.join(group.members)}",
            file=sys.stderr,
        )


async def _create(admin: AdminClient, group: str, topic: str) -> None:
    """Makes the group on every broker group that has the topic."""
    body = (encode_json({"groupName": group}),)
    for address in (await admin.route(topic)).masters.values():
        await admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def reset_offsets(
    admin: AdminClient, group: str, topic: str, target: str | int
) -> dict[tuple[str, int], int]:
    """Moves the group in every queue of the topic; returns the new offsets.

    A broker with members of the group resets them and notifies them; elsewhere the offsets are
    committed.
    """
    queues = await view_queues(admin, topic)
    offsets: dict[tuple[str, int], int] = {}
    for broker, address in (await admin.route(topic)).masters.items():
        here = [queue for queue in queues if queue.broker == broker]
        moved = await _reset_members(admin, address, group, topic, target)
        if moved is None:
            moved = await _commit_offsets(admin, address, group, topic, target=target, queues=here)
        offsets |= {(broker, queue_id): offset for queue_id, offset in sorted(moved.items())}
    return offsets


async def _reset_members(
    admin: AdminClient, address: str, group: str, topic: str, target: str | int
) -> dict[int, int] | None:
    """The new offsets by queue id; None if the group has no members at this broker."""
    timestamp_ms = {EARLIEST: 0, LATEST: -1}.get(str(target), target)
    ext = {"topic": topic, "group": group, "timestamp": timestamp_ms, "isForce": True}
    try:
        answer = await admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    except RefusedError as error:
        if error.code in GROUP_IS_AWAY:
            return None
        raise
    return {queue.queue_id: offset for queue, offset in reset_offsets_of(answer.body).items()}


async def _commit_offsets(
    admin: AdminClient,
    address: str,
    group: str,
    topic: str,
    *,
    target: str | int,
    queues: Sequence[QueueView],
) -> dict[int, int]:
    async def move(queue: QueueView) -> int:
        place = {"topic": topic, "queueId": queue.queue_id}
        if target == EARLIEST:
            offset = queue.min_offset
        elif target == LATEST:
            offset = queue.max_offset
        else:
            of_time = place | {"timestamp": target, "boundaryType": "lower"}
            found = await admin.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, of_time)
            offset = int(str(found.ext["offset"]))
        await admin.ask(
            address,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            place | {"consumerGroup": group, "commitOffset": offset},
        )
        return offset

    offsets = await asyncio.gather(*map(move, queues))
    return {queue.queue_id: offset for queue, offset in zip(queues, offsets, strict=True)}


async def _has_dead_letters(admin: AdminClient, group: str) -> bool:
    """Whether they have a topic: it is made with the first of them."""
    try:
        await admin.route(dead_letter_topic(group))
    except NoTopicError:
        return False
    return True
