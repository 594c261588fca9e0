"""Creates, changes, resets and deletes consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from broker.cli.terminal.name_arguments import group_name, topic_name
from broker.cli.terminal.time_arguments import place_in_time
from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.consumer_group_views import find_group
from broker.cluster_admin.consumer_groups import (
    RETRIES_MAX,
    GroupDeletion,
    create_group,
    group_configs,
    put_group,
)
from broker.cluster_admin.offset_resets import foresee_offsets, reset_offsets
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
from broker.console.visits.templating import NOTHING, number, plural
from broker.console.visits.visit import Visit

_SETTINGS = (
    Field(
        "retry_max",
        "Retries before a dead letter",
        "number",
        hint="Usually 16. Clients that send a limit of their own use that.",
    ),
    Field(
        "consume",
        "Its members",
        "choice",
        choices=choices(("", "as it is"), ("yes", "get messages"), ("no", "get nothing")),
    ),
    Field(
        "broadcast",
        "Broadcast",
        "choice",
        choices=choices(("", "as it is"), ("yes", "allowed"), ("no", "not allowed")),
    ),
)


def _changes(values: Values) -> dict[str, int | bool]:
    changes: dict[str, int | bool] = {}
    retries = whole(values, "retry_max", 0, RETRIES_MAX)
    if retries is not None:
        changes["retryMaxTimes"] = retries
    for name, field in (("consume", "consumeEnable"), ("broadcast", "consumeBroadcastEnable")):
        if told := one_of(values, name, ("yes", "no")):
            changes[field] = told == "yes"
    return changes


def _options(values: Values) -> list[str]:
    _changes(values)
    words = ["--retry-max", values["retry_max"]] if values.get("retry_max") else []
    told = [name for name in ("consume", "broadcast") if values.get(name)]
    return [*words, *(f"--{'' if values[name] == 'yes' else 'no-'}{name}" for name in told)]


class CreateGroup(Action):
    """``dledger group create``."""

    name, title, verb = "group-create", "Create a consumer group", "Create"
    fields = (Field("group", "Name", required=True), *_SETTINGS)

    def arguments(self, values: Values) -> Sequence[str]:
        return ["group", "create", checked(group_name, values, "group"), *_options(values)]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        found = await group_configs(visit.admin, values["group"])
        lacking = [config for config in found.values() if config is None]
        if not lacking:
            raise UsageError(f"there is a group {values['group']} already")
        return Preview(
            f"Create the group {values['group']} on {plural(len(lacking), 'broker group')}?",
            note="Consumers make their groups by themselves, with the usual settings.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        name = checked(group_name, values, "group")
        await create_group(visit.admin, name, _changes(values))
        return f"{name} is created."


class AlterGroup(Action):
    """``dledger group alter``."""

    name, title, verb = "group-alter", "Change a consumer group", "Change"
    fields = (Field("group", "Group", "hidden"), *_SETTINGS)

    def arguments(self, values: Values) -> Sequence[str]:
        return ["group", "alter", checked(group_name, values, "group"), *_options(values)]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        name, changes = values["group"], _changes(values)
        if not changes:
            raise UsageError("nothing is changed; fill in what shall be")
        rows = [
            (address, setting, str(config.get(setting)), str(value))
            for address, config in (await group_configs(visit.admin, name)).items()
            if config is not None
            for setting, value in changes.items()
            if config.get(setting) != value
        ]
        if not rows:
            raise UsageError(f"{name} is set so already, or has no settings of its own yet")
        return Preview(f"Change the group {name}?", ("Leader", "Setting", "Is", "Will be"), rows)

    async def run(self, visit: Visit, values: Values) -> str:
        name = checked(group_name, values, "group")
        for address, config in (await group_configs(visit.admin, name)).items():
            if config is not None:
                await put_group(visit.admin, [address], {**config, **_changes(values)})
        return f"{name} is changed."


class ResetGroup(Action):
    """``dledger group reset-offset``."""

    name, title, verb, danger = "group-reset", "Move a group in a topic", "Move", True
    fields = (
        Field("group", "Group", "hidden"),
        Field("topic", "Topic", required=True),
        Field(
            "to",
            "To",
            required=True,
            default="earliest",
            hint="earliest, latest, or a time such as 1h (an hour ago) or 2026-11-22T10:00:00Z.",
        ),
    )

    def arguments(self, values: Values) -> Sequence[str]:
        group = checked(group_name, values, "group")
        topic = checked(topic_name, values, "topic")
        to = checked(place_in_time, values, "to")
        return ["group", "reset-offset", group, "--topic", topic, "--to", to]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        group, topic = values["group"], values["topic"]
        target = place_in_time(values["to"])
        known = await find_group(visit.admin, group)
        now = known.offsets(topic)
        offsets = await when_led(lambda: foresee_offsets(visit.admin, topic, target))
        again = sum(max(now.get(place, new) - new, 0) for place, new in offsets.items())
        skipped = sum(max(new - now.get(place, new), 0) for place, new in offsets.items())
        rows = [
            (broker, queue_id, number(now.get((broker, queue_id))), number(new), _moved(old, new))
            for (broker, queue_id), new in offsets.items()
            for old in [now.get((broker, queue_id))]
        ]
        effect = [
            f"{plural(again, 'message')} will be consumed again" if again else "",
            f"{plural(skipped, 'message')} will be left out" if skipped else "",
        ]
        return Preview(
            f"Move the group {group} in {topic} to {values['to']}?",
            ("Broker group", "Queue", "Is at", "Will be at", "Moves by"),
            rows,
            note=(", ".join(filter(None, effect)) or "No queue moves") + ".",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        group, topic = values["group"], values["topic"]
        target = place_in_time(values["to"])
        offsets = await when_led(lambda: reset_offsets(visit.admin, group, topic, target))
        return f"{group} is moved in {plural(len(offsets), 'queue')} of {topic}."


def _moved(old: int | None, new: int) -> str:
    if old is None:
        return NOTHING
    return f"{new - old:+,}" if new != old else "0"


class DeleteGroup(Action):
    """``dledger group delete``."""

    name, title, verb, danger = "group-delete", "Delete a consumer group", "Delete", True
    fields = (Field("group", "Group", "hidden"),)
    leads_to = "groups"

    def arguments(self, values: Values) -> Sequence[str]:
        return ["group", "delete", checked(group_name, values, "group"), "--yes"]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        known = await find_group(visit.admin, values["group"])
        note = "Its offsets and retries go with it. Its dead letters stay."
        if known.members:
            note += f" {plural(len(known.members), 'member')} will make it again when they report."
        return Preview(
            f"Delete the group {known.name}, with {plural(known.lag, 'message')} not yet consumed?",
            note=note,
        )

    async def run(self, visit: Visit, values: Values) -> str:
        deletion = GroupDeletion(values["group"])
        await when_led(lambda: deletion.run(visit.admin))
        return f"{values['group']} is deleted."


ACTIONS = (CreateGroup(), AlterGroup(), ResetGroup(), DeleteGroup())
