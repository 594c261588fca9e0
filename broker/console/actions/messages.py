"""Sends a test message."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Sequence

from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.time_arguments import future_ms
from broker.client.message import PROPERTY_DELIVER_AT, Message
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
from broker.console.visits.visit import Visit
from broker.limits import STATE


class SendMessage(Action):
    """``dledger produce``, with one line or one file."""

    name, title, verb = "message-send", "Send a test message", "Send"
    fields = (
        Field("topic", "Topic", required=True),
        Field("body", "Body", "area"),
        Field(
            "form",
            "The body is",
            "choice",
            choices=choices(("text", "text"), ("base64", "base64 of its bytes")),
        ),
        Field("tag", "Tag"),
        Field("key", "Keys", hint="Several with spaces."),
        Field("properties", "Properties", "area", hint="One a line, as name=value."),
        Field("queue", "Queue", "number", hint="Empty: any."),
        Field("deliver_at", "Deliver at", hint="Empty: now. Such as 30s, 10m, 2026-11-22T10:00Z."),
    )

    def arguments(self, values: Values) -> Sequence[str]:
        words = ["produce", checked(topic_name, values, "topic")]
        for name, option in (("tag", "--tag"), ("key", "--key")):
            if values.get(name):
                words += [option, values[name]]
        for name, value in _properties(values).items():
            words += ["--property", f"{name}={value}"]
        queue = whole(values, "queue", 0, STATE.queues_max - 1)
        if queue is not None:
            words += ["--queue", str(queue)]
        if values.get("deliver_at"):
            _deliver_at(values)
            words += ["--deliver-at", values["deliver_at"]]
        if _needs_file(values):
            words += ["--file", "/dev/stdin"]
        return words

    def command(self, visit: Visit, values: Values) -> str:
        command = super().command(visit, values)
        body = shlex.quote(values.get("body", ""))
        if values.get("form") == "base64":
            return f"printf %s {body} | base64 -d | {command}"
        if _needs_file(values):
            return f"printf %s {body} | {command}"
        return f"printf '%s\\n' {body} | {command}"

    async def preview(self, visit: Visit, values: Values) -> Preview:
        size = len(_body(values))
        await visit.admin.route(values["topic"])
        return Preview(
            f"Send a message of {size:,} bytes to {values['topic']}?",
            note="Consumers of the topic get it like any other message.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        topic = checked(topic_name, values, "topic")
        properties = _properties(values)
        if values.get("deliver_at"):
            properties[PROPERTY_DELIVER_AT] = str(_deliver_at(values))
        message = Message(
            topic,
            _body(values),
            tags=values.get("tag", ""),
            keys=values.get("key", ""),
            properties=properties,
        )
        queue_id = whole(values, "queue", 0, STATE.queues_max - 1)
        async with visit.producer() as producer:
            queue = None
            if queue_id is not None:
                queues = [
                    each for each in await producer.queues(topic) if each.queue_id == queue_id
                ]
                if not queues:
                    raise UsageError(f"{topic} has no queue {queue_id}")
                queue = queues[0]
            result = await producer.send(message, queue)
        return (
            f"Stored in {result.queue.broker}, queue {result.queue.queue_id}, "
            f"offset {result.queue_offset}, with id {result.joined_message_ids}."
        )


def _body(values: Values) -> bytes:
    text = values.get("body", "")
    if one_of(values, "form", ("text", "base64")) != "base64":
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"the body is not base64: {error}") from None


def _needs_file(values: Values) -> bool:
    """Whether the body cannot be sent as a line of stdin."""
    body = values.get("body", "")
    return values.get("form") == "base64" or not body or "\n" in body or "\r" in body


def _properties(values: Values) -> dict[str, str]:
    found = {}
    for line in values.get("properties", "").splitlines():
        name, equals, value = line.strip().partition("=")
        if line.strip() and not (name and equals):
            raise UsageError(f"{line.strip()!r} is no property, such as region=eu")
        if name:
            found[name] = value
    return found


@UsageError.instead_of(ValueError)
def _deliver_at(values: Values) -> int:
    return future_ms(values["deliver_at"])


ACTIONS = (SendMessage(),)
