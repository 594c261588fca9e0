"""Sets and removes quotas."""

from __future__ import annotations

from collections.abc import Sequence

from broker.cli.terminal.numbers import byte_size
from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.quotas import put_quota, quotas_by_group
from broker.cluster_admin.settings import leaders_by_group
from broker.command_error import UsageError
from broker.console.actions.action import (
    Action,
    Field,
    Preview,
    Values,
    checked,
    choices,
    whole,
)
from broker.console.visits.templating import number, size
from broker.console.visits.visit import Visit
from broker.quotas.quota import (
    ACCOUNT,
    CLIENT,
    EACH,
    RATE_MAX,
    TOPIC,
    Entity,
    Quota,
    QuotaError,
    parse_entity,
)

_MESSAGES = ("produce_messages", "consume_messages")
_BYTES = ("produce_bytes", "consume_bytes")
_GROUP = "group"


@UsageError.instead_of(QuotaError)
def _entity(values: Values) -> Entity:
    return parse_entity(Entity(values.get("type", ""), values.get("name", "")).setting)


def _quota(values: Values) -> Quota:
    rates = {name: whole(values, name, 0, RATE_MAX) or 0 for name in _MESSAGES}
    for name in _BYTES:
        if values.get(name):
            rates[name] = byte_size(checked(byte_size, values, name))
    quota = Quota(**rates)
    if not any(quota):
        raise UsageError("no rate is limited; fill in one, or take the quota away")
    return quota


class QuotaAction(Action):
    """A change of the quota of an entity."""

    def arguments(self, values: Values) -> Sequence[str]:
        entity = _entity(values)
        words = ["quota", self.name.removeprefix("quota-"), *entity]
        return [*words, "--group", values[_GROUP]] if values.get(_GROUP) else words

    async def _preview(self, visit: Visit, values: Values, quota: Quota, question: str) -> Preview:
        entity, group = _entity(values), values.get(_GROUP) or None
        leaders = await when_led(lambda: leaders_by_group(visit.admin, group))
        known = {
            each.group: each.quota
            for each in await quotas_by_group(visit.admin, group)
            if each.entity == entity
        }
        rows = [(name, told(known.get(name, Quota())), told(quota)) for name in leaders]
        return Preview(
            f"{question.format(words(entity))}?",
            ("Broker group", "Is", "Will be"),
            rows,
            "Who is beyond it gets answers later. Each node counts for itself."
            if any(quota)
            else "",
        )


class SetQuota(QuotaAction):
    """``dledger quota set``."""

    name, title, verb = "quota-set", "Set a quota", "Set"
    fields = (
        Field(
            "type",
            "Of",
            "choice",
            choices=choices((TOPIC, "a topic"), (ACCOUNT, "an account"), (CLIENT, "a client id")),
        ),
        Field("name", "Name", required=True, hint=f"{EACH} is each without a quota of its own."),
        Field("produce_messages", "Messages sent in a second", "number", hint="Empty: no limit."),
        Field("produce_bytes", "Bytes sent in a second", hint="Such as 512KiB or 1MiB."),
        Field("consume_messages", "Messages given out in a second", "number"),
        Field("consume_bytes", "Bytes given out in a second"),
        Field(_GROUP, "Broker group", hint="Empty: all."),
    )

    def arguments(self, values: Values) -> Sequence[str]:
        _quota(values)
        rates = [
            word
            for name in Quota._fields
            if values.get(name)
            for word in (f"--{name.replace('_', '-')}", values[name])
        ]
        return [*super().arguments(values), *rates]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        return await self._preview(visit, values, _quota(values), "Set the quota of {}")

    async def run(self, visit: Visit, values: Values) -> str:
        entity, quota = _entity(values), _quota(values)
        group = values.get(_GROUP) or None
        groups = await when_led(lambda: put_quota(visit.admin, group, entity, quota))
        return f"{words(entity)}: {told(quota)}, on {', '.join(groups)}."


class UnsetQuota(QuotaAction):
    """``dledger quota unset``."""

    name, title, verb = "quota-unset", "Take a quota away", "Take it away"
    fields = (
        Field("type", "Of", "hidden"),
        Field("name", "Name", "hidden"),
        Field(_GROUP, "Broker group", "hidden"),
    )

    async def preview(self, visit: Visit, values: Values) -> Preview:
        return await self._preview(visit, values, Quota(), "Take the quota of {} away")

    async def run(self, visit: Visit, values: Values) -> str:
        entity, group = _entity(values), values.get(_GROUP) or None
        groups = await when_led(lambda: put_quota(visit.admin, group, entity, Quota()))
        return f"{words(entity)} has no quota any more on {', '.join(groups)}."


def words(entity: Entity) -> str:
    """The entity as text, such as topic clicks."""
    if entity.name == EACH:
        return f"each {entity.type} without a quota of its own"
    return f"{entity.type} {entity.name}"


def told(quota: Quota) -> str:
    """The quota as text, for a cell."""
    parts = (
        ("in", limits(quota.produce_messages, quota.produce_bytes)),
        ("out", limits(quota.consume_messages, quota.consume_bytes)),
    )
    return "; ".join(f"{way} {limits}" for way, limits in parts if limits) or "no quota"


def limits(messages: int, bytes_: int) -> str:
    """The limits as text; empty without a limit."""
    parts = []
    if messages:
        parts.append(f"{number(messages)} messages/s")
    if bytes_:
        parts.append(f"{size(bytes_)}/s")
    return ", ".join(parts)


ACTIONS = (SetQuota(), UnsetQuota())
