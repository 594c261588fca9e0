"""``dledger group``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker.cli.admin import Admin, NoTopicError, RefusedError, document_of, run_on_leaders
from broker.cli.failure import CommandError
from broker.cli.names import group_name, topic_name
from broker.cli.options import add_json, add_namesrv, print_json, print_table
from broker.cli.times import TIME, TIME_HELP, place_in_time
from broker.cli.topic import QueueView, view_queues
from broker.client.resets import reset_offsets as reset_offsets_of
from broker.remoting.codes import RequestCode, ResponseCode

EXAMPLES = """\
  dledger group list
  dledger group describe printers
  dledger group reset-offset printers --topic orders --to earliest
  dledger group reset-offset printers --topic orders --to 1790000000000    (milliseconds)
  dledger group delete printers
"""

EARLIEST, LATEST = "earliest", "latest"
GROUP_IS_AWAY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


@dataclass(frozen=True, slots=True)
class ProgressView:
    """How far a group is in one queue."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    max_offset: int
    lag: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the groups that the brokers know")
    describe = actions.add_parser("describe", help="a group's members, offsets and lag")
    reset = actions.add_parser(
        "reset-offset", help="move a group in a topic, whether it is consuming or not"
    )
    reset.add_argument("--topic", metavar="T", type=topic_name, required=True)
    reset.add_argument(
        "--to", type=place_in_time, metavar=f"earliest|latest|{TIME}", required=True, help=TIME_HELP
    )
    delete = actions.add_parser("delete", help="delete a group and its offsets")
    for action in (describe, reset, delete):
        action.add_argument("name", metavar="NAME", type=group_name)
    for action in (listing, describe, reset, delete):
        add_namesrv(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    actions = {"list": _list, "describe": _describe, "reset-offset": _reset, "delete": _delete}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    async def names(admin: Admin) -> list[str]:
        groups: dict[str, None] = {}
        for address in (await admin.masters()).values():
            groups.update(dict.fromkeys(await _groups_at(admin, address)))
        return sorted(groups)

    groups = run_on_leaders(args.namesrv, names)
    if args.json:
        print_json({"groups": groups})
    else:
        print("\n".join(groups) or "no group has been seen yet")
    return 0


async def _groups_at(admin: Admin, address: str) -> Mapping[str, Any]:
    answer = await admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table: Mapping[str, Any] = document_of(answer)["subscriptionGroupTable"]
    return table


async def _masters_with(admin: Admin, group: str) -> dict[str, str]:
    """The leaders that know the group, by broker name; :class:`CommandError` if none does."""
    masters = await admin.masters()
    known = {
        name: address
        for name, address in masters.items()
        if group in await _groups_at(admin, address)
    }
    if not known:
        raise CommandError(f"no broker knows the group {group}; `dledger group list` shows those")
    return known


async def view_members(admin: Admin, group: str) -> list[str]:
    """The client ids of the group's consumers that are connected now."""
    members: dict[str, None] = {}
    for address in (await admin.masters()).values():
        try:
            answer = await admin.ask(
                address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
            )
        except RefusedError:
            continue  # how a broker says that there are none
        members.update(dict.fromkeys(document_of(answer).get("consumerIdList", [])))
    return sorted(members)


async def view_progress(admin: Admin, group: str) -> list[ProgressView]:
    """Every queue for which the group has an offset, as the leaders have committed it."""
    progress: list[ProgressView] = []
    queues: dict[str, list[QueueView]] = {}
    for broker, address in (await _masters_with(admin, group)).items():
        answer = await admin.ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        for name, offsets in sorted(document_of(answer)["offsetTable"].items()):
            topic, _, owner = name.rpartition("@")
            if owner != group:
                continue
            if topic not in queues:
                try:
                    queues[topic] = await view_queues(admin, topic)
                except NoTopicError:  # deleted since; the offset waits for a topic of that name
                    queues[topic] = []
            for queue in queues[topic]:
                offset = offsets.get(str(queue.queue_id))
                if queue.broker == broker and offset is not None:
                    lag = max(0, queue.max_offset - offset)
                    progress.append(
                        ProgressView(topic, broker, queue.queue_id, offset, queue.max_offset, lag)
                    )
    return progress


def _describe(args: argparse.Namespace) -> int:
    async def describe(admin: Admin) -> tuple[list[str], list[ProgressView]]:
        progress = await view_progress(admin, args.name)
        return await view_members(admin, args.name), progress

    members, progress = run_on_leaders(args.namesrv, describe)
    if args.json:
        document = {"group": args.name, "members": members}
        print_json(document | {"queues": [asdict(queue) for queue in progress]})
        return 0
    print(f"{len(members)} member(s) connected{': ' if members else ''}{', '.join(members)}")
    print_table(
        ("TOPIC", "BROKER", "QUEUE", "OFFSET", "MAX", "LAG"),
        [(q.topic, q.broker, q.queue_id, q.offset, q.max_offset, q.lag) for q in progress],
    )
    return 0


def _reset(args: argparse.Namespace) -> int:
    offsets = run_on_leaders(
        args.namesrv, lambda admin: reset_offsets(admin, args.name, args.topic, args.to)
    )
    if args.json:
        queues = [{"broker": b, "queue_id": q, "offset": o} for (b, q), o in offsets.items()]
        print_json({"group": args.name, "topic": args.topic, "queues": queues})
    else:
        rows = [(broker, queue_id, offset) for (broker, queue_id), offset in offsets.items()]
        print_table(("BROKER", "QUEUE", "OFFSET"), rows)
    return 0


async def reset_offsets(
    admin: Admin, group: str, topic: str, target: str | int
) -> dict[tuple[str, int], int]:
    """Moves the group in every queue of the topic; returns the new offsets.

    A broker with members of the group moves it there and tells them; elsewhere the offsets are
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
    admin: Admin, address: str, group: str, topic: str, target: str | int
) -> dict[int, int] | None:
    """The new offsets by queue id; None where the group has no members at this broker."""
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
    admin: Admin,
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


def _delete(args: argparse.Namespace) -> int:
    async def delete(admin: Admin) -> list[str]:
        known = await _masters_with(admin, args.name)
        for address in known.values():
            await admin.ask(
                address,
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                {"groupName": args.name, "removeOffset": True},
            )
        return list(known.values())

    brokers = run_on_leaders(args.namesrv, delete)
    if args.json:
        print_json({"group": args.name, "brokers": brokers})
    else:
        print(f"deleted {args.name} on {', '.join(brokers)}")
    return 0
