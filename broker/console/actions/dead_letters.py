"""Sending dead letters again, and deleting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from broker.cli.terminal.name_arguments import group_name, topic_name
from broker.client.message import PROPERTY_RETRY_TOPIC
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.dead_letters import dead_letters, send_again
from broker.cluster_admin.message_lookup import MESSAGE_ID
from broker.cluster_admin.peeking import Window
from broker.cluster_admin.topics import delete_topic, view_queues
from broker.command_error import UsageError
from broker.console.actions.action import Action, Field, Preview, Values, checked, whole
from broker.console.visits.templating import plural, size
from broker.console.visits.visit import Visit
from broker.limits import CONSOLE
from broker.topics_and_groups import dead_letter_topic, retry_topic


class ResendDeadLetters(Action):
    """``dledger dlq resend``."""

    name, title, verb = "dead-resend", "Send dead letters again", "Send again"
    fields = (
        Field("group", "Group", "hidden"),
        Field("id", "Only the one with this id", hint="Empty: all of them."),
        Field(
            "last",
            "Only the last",
            "number",
            hint=f"So many of them, at most {CONSOLE.dead_letters_last_max}. Empty: all.",
        ),
        Field(
            "to",
            "To the topic",
            hint="Empty: to the group alone, as a new try. Else to all groups of that topic.",
        ),
    )

    @property
    def asks_at_once(self) -> bool:
        return False

    def arguments(self, values: Values) -> Sequence[str]:
        words = ["dlq", "resend", checked(group_name, values, "group")]
        if values.get("id"):
            if not MESSAGE_ID.fullmatch(values["id"]):
                raise UsageError("an id has 32 hexadecimal digits")
            words += ["--id", values["id"]]
        last = whole(values, "last", 1, CONSOLE.dead_letters_last_max)
        if last is not None:
            words += ["--last", str(last)]
        if values.get("to"):
            words += ["--to", checked(topic_name, values, "to")]
        return [*words, "--yes"]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        rows = []
        count = 0
        async for message in self._chosen(visit, values):
            count += 1
            if count <= CONSOLE.preview_rows_max:
                sent_to = message.properties.get(PROPERTY_RETRY_TOPIC, "")
                rows.append((message.message_id, sent_to, size(len(message.raw_body))))
        if not count:
            raise UsageError(f"{values['group']} has no dead letters")
        target = values.get("to") or f"the group {values['group']} alone"
        more = f"And {count - len(rows):,} more. " if count > len(rows) else ""
        return Preview(
            f"Send {plural(count, 'dead letter')} to {target}?",
            ("Message", "Was sent to", "Size"),
            rows,
            note=f"{more}They stay among the dead letters, until these are deleted.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        sent = 0
        topic = values.get("to") or retry_topic(values["group"])
        async with visit.producer() as producer:
            async for message in self._chosen(visit, values):
                async for _ in send_again(producer, topic, [message]):
                    sent += 1
        return f"{plural(sent, 'message')} sent to {topic}."

    def _chosen(self, visit: Visit, values: Values) -> AsyncIterator[ReceivedMessage]:
        """One by one, because there may be more than this node's memory holds."""
        window = Window(last=whole(values, "last", 1, CONSOLE.dead_letters_last_max))
        ids = [values["id"]] if values.get("id") else []
        return dead_letters(visit.admin, values["group"], window, ids)


class PurgeDeadLetters(Action):
    """``dledger dlq purge``."""

    name, title, verb, danger = "dead-purge", "Delete all dead letters", "Delete", True
    fields = (Field("group", "Group", "hidden"),)
    leads_to = "dead"

    def arguments(self, values: Values) -> Sequence[str]:
        return ["dlq", "purge", checked(group_name, values, "group"), "--yes"]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        queues = await view_queues(visit.admin, dead_letter_topic(values["group"]))
        count = sum(queue.max_offset - queue.min_offset for queue in queues)
        return Preview(
            f"Delete {plural(count, 'dead letter')} of {values['group']}?",
            note="This cannot be undone.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        topic = dead_letter_topic(values["group"])
        await when_led(lambda: delete_topic(visit.admin, topic))
        return f"The dead letters of {values['group']} are deleted."


ACTIONS = (ResendDeadLetters(), PurgeDeadLetters())
