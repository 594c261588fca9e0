"""Creates, changes and deletes topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.options import DEFAULT_CLUSTER
from broker.cli.terminal.time_arguments import length_ms, length_text
from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.topics import (
    PERMISSIONS,
    QUEUES_USUAL,
    READ_QUEUES,
    WRITE_QUEUES,
    delete_topic,
    leaders_of,
    make_or_change_topic,
    permission_word,
    topic_configs,
    view_queues,
)
from broker.command_error import UsageError
from broker.console.actions.action import (
    Action,
    Field,
    Preview,
    Values,
    checked,
    choices,
    one_of,
    whole,
)
from broker.console.visits.templating import number, plural
from broker.console.visits.visit import Visit
from broker.limits import STATE
from broker.topics_and_groups import MESSAGE_TYPE, MESSAGE_TYPES, RETENTION_MS

_PERMISSION = Field(
    "perm",
    "Clients may",
    "choice",
    choices=choices(
        ("", "as it is (a new topic: read and write)"),
        ("rw", "read and write"),
        ("r", "only read"),
        ("w", "only write"),
        ("none", "neither"),
    ),
)
_TYPE = Field(
    "type",
    "Takes messages of type",
    "choice",
    choices=choices(("", "as it is (a new topic: all)"), *((each, each) for each in MESSAGE_TYPES)),
)
_ORDER = Field(
    "order",
    "Order of a queue",
    "choice",
    choices=choices(("", "as it is"), ("yes", "matters"), ("no", "does not matter")),
)
_RETENTION = Field(
    "retention",
    "Keeps messages for",
    hint="Such as 24h or 7d; unset: as long as the log. Empty: as it is.",
)
_QUEUES_HINT = "Of each broker group."


def _changes(values: Values) -> dict[str, Any]:
    """The given settings, by RocketMQ's names."""
    changes: dict[str, Any] = {}
    queues = whole(values, "queues", 1, STATE.queues_max)
    if queues is not None:
        changes = {READ_QUEUES: queues, WRITE_QUEUES: queues}
    if perm := one_of(values, "perm", list(PERMISSIONS)):
        changes["perm"] = PERMISSIONS[perm]
    if order := one_of(values, "order", ("yes", "no")):
        changes["order"] = order == "yes"
    if message_type := one_of(values, "type", MESSAGE_TYPES):
        changes[MESSAGE_TYPE] = message_type
    if values.get("retention"):
        changes[RETENTION_MS] = _retention(checked(_retention, values, "retention"))
    return changes


def _retention(text: str) -> int:
    return 0 if text == "unset" else length_ms(text)


def _settings(values: Values) -> list[str]:
    _changes(values)
    words = []
    for name in ("queues", "perm", "type", "retention"):
        if values.get(name):
            words += [f"--{name}", values[name]]
    if values.get("order"):
        words.append("--order" if values["order"] == "yes" else "--no-order")
    if values.get("fewer"):
        words.append("--fewer")
    return words


class CreateTopic(Action):
    """``dledger topic create``."""

    name, title, verb = "topic-create", "Create a topic", "Create"
    fields = (
        Field("topic", "Name", required=True, hint="Letters, digits and % | - _"),
        Field("queues", "Queues", "number", default=str(QUEUES_USUAL), hint=_QUEUES_HINT),
        _PERMISSION,
        _TYPE,
        _ORDER,
        _RETENTION,
        Field("cluster", "Cluster", "hidden"),
    )

    async def suggest(self, visit: Visit, values: Values) -> Values:
        cluster = visit.context.config.cluster
        return {**values, "cluster": "" if cluster == DEFAULT_CLUSTER else cluster}

    def arguments(self, values: Values) -> Sequence[str]:
        name = checked(topic_name, values, "topic")
        return ["topic", "create", name, *_settings(values), *_cluster(values)]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        name = checked(topic_name, values, "topic")
        addresses = await leaders_of(visit.admin, None, visit.context.config.cluster)
        known = await topic_configs(visit.admin, name, addresses)
        if all(known.values()):
            raise UsageError(f"there is a topic {name} already")
        queues = values.get("queues") or str(QUEUES_USUAL)
        return Preview(
            f"Create the topic {name} with {queues} queues "
            f"on {plural(len(addresses), 'broker group')}?"
        )

    async def run(self, visit: Visit, values: Values) -> str:
        name = checked(topic_name, values, "topic")

        async def make() -> int:
            addresses = await leaders_of(visit.admin, None, visit.context.config.cluster)
            _, count, _ = await make_or_change_topic(
                visit.admin, name, addresses, _changes(values), fewer=False
            )
            return count

        count = await when_led(make)
        return f"{name} is created with {plural(count, 'queue')} on each broker group."


def _cluster(values: Values) -> list[str]:
    """The option for the cluster, unless it is the commands' default."""
    return ["-c", values["cluster"]] if values.get("cluster") else []


class AlterTopic(Action):
    """``dledger topic alter``."""

    name, title, verb = "topic-alter", "Change a topic", "Change"
    fields = (
        Field("topic", "Topic", "hidden"),
        Field("queues", "Queues", "number", hint=f"{_QUEUES_HINT} Empty: as many as it has."),
        _PERMISSION,
        _TYPE,
        _ORDER,
        _RETENTION,
        Field(
            "fewer",
            "Fewer queues are right",
            "check",
            hint="Consumers no longer see what is in the queues taken away.",
        ),
    )

    def arguments(self, values: Values) -> Sequence[str]:
        return ["topic", "alter", checked(topic_name, values, "topic"), *_settings(values)]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        changes = _changes(values)
        if not changes:
            raise UsageError("nothing is changed; fill in what shall be")
        name = values["topic"]
        addresses = [*(await visit.admin.route(name)).masters.values()]
        rows = []
        for address, config in (await topic_configs(visit.admin, name, addresses)).items():
            queues = changes.get(READ_QUEUES, config[READ_QUEUES])
            if queues < config[READ_QUEUES] and not values.get("fewer"):
                raise UsageError(
                    f"{name} has {config[READ_QUEUES]} queues on {address}: with {queues}, "
                    "consumers no longer see what is in the others; tick the box if that is right"
                )
            before, after = _told(config), _told({**config, **changes})
            rows += [
                (address, label, before[label], after[label])
                for label in before
                if before[label] != after[label]
            ]
        if not rows:
            raise UsageError(f"{name} is set so already")
        return Preview(f"Change the topic {name}?", ("Leader", "Setting", "Is", "Will be"), rows)

    async def run(self, visit: Visit, values: Values) -> str:
        name = values["topic"]

        async def change() -> None:
            addresses = [*(await visit.admin.route(name)).masters.values()]
            await make_or_change_topic(
                visit.admin, name, addresses, _changes(values), fewer=bool(values.get("fewer"))
            )

        await when_led(change)
        return f"{name} is changed."


def _told(config: Any) -> dict[str, str]:
    kept_ms = config.get(RETENTION_MS)
    return {
        "queues": str(config[READ_QUEUES]),
        "permission": permission_word(config["perm"]),
        "type": str(config[MESSAGE_TYPE]),
        "order matters": "yes" if config["order"] else "no",
        "keeps messages for": length_text(kept_ms) if kept_ms else "as long as the log",
    }


class DeleteTopic(Action):
    """``dledger topic delete``."""

    name, title, verb, danger = "topic-delete", "Delete a topic", "Delete", True
    fields = (Field("topic", "Topic", "hidden"),)
    leads_to = "topics"

    def arguments(self, values: Values) -> Sequence[str]:
        return ["topic", "delete", checked(topic_name, values, "topic"), "--yes"]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        name = values["topic"]
        queues = await view_queues(visit.admin, name)
        messages = sum(queue.max_offset - queue.min_offset for queue in queues)
        document = await visit.view.document()
        lags: dict[str, int] = {}
        for row in document["groups"]:
            if row["topic"] == name:
                lags[row["group"]] = lags.get(row["group"], 0) + (row["lag"] or 0)
        return Preview(
            f"Delete the topic {name} and its {plural(messages, 'message')}?",
            ("Group that consumes it", "Not yet consumed") if lags else (),
            [(group, number(lag)) for group, lag in lags.items()],
            note="This cannot be undone.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        brokers = await when_led(lambda: delete_topic(visit.admin, values["topic"]))
        return f"{values['topic']} is deleted on {', '.join(brokers)}."


ACTIONS = (CreateTopic(), AlterTopic(), DeleteTopic())
