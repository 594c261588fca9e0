"""Creates, changes and deletes consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.cluster_admin.admin_client import AdminClient, NoTopicError, document_of
from broker.cluster_admin.consumer_group_views import ConsumerGroupView, find_group
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.ext_fields import INT32_MAX
from broker.remoting.protocol.java_json import encode_json
from broker.topics_and_groups import dead_letter_topic

RETRIES_MAX = INT32_MAX
"""Format: the most retries before a message of a group becomes a dead letter."""


class GroupDeletion:
    """Deletes a group with its offsets and retries. It may be repeated after a failure."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: ConsumerGroupView | None = None

    async def run(self, admin: AdminClient) -> tuple[ConsumerGroupView, bool]:
        """Deletes the group. Returns the group as it was, and whether it leaves dead letters.
        Raises :class:`~broker.command_error.CommandError`."""
        if self._found is None:  # in a second try, the first may have deleted it
            self._found = await find_group(admin, self._name)
        masters = await admin.masters()
        for address in (masters[broker] for broker in self._found.masters):
            await admin.ask(
                address,
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                {"groupName": self._name, "removeOffset": True},
            )
        return self._found, await _has_dead_letters(admin, self._name)


async def create_group(admin: AdminClient, name: str, settings: Mapping[str, object]) -> None:
    """Creates the group at the leaders that lack it; at the others its settings stay.

    Raises :class:`~broker.command_error.CommandError` if all have it.
    """
    found = await group_configs(admin, name)
    lacking = [address for address, config in found.items() if config is None]
    if not lacking:
        raise CommandError(f"there is a group {name}; `dledger group alter` changes it")
    await put_group(admin, lacking, {"groupName": name, **settings})


async def put_group(
    admin: AdminClient, addresses: Iterable[str], config: Mapping[str, object]
) -> None:
    """Creates or changes the group at these leaders."""
    body = (encode_json(config),)
    for address in addresses:
        await admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def group_configs(admin: AdminClient, name: str) -> dict[str, dict[str, Any] | None]:
    """The group's settings by leader; None where there are none."""
    found: dict[str, dict[str, Any] | None] = {}
    for address in (await admin.masters()).values():
        answer = await admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        found[address] = document_of(answer)["subscriptionGroupTable"].get(name)
    return found


async def _has_dead_letters(admin: AdminClient, group: str) -> bool:
    """Whether the topic of dead letters exists: the first dead letter creates it."""
    try:
        await admin.route(dead_letter_topic(group))
    except NoTopicError:
        return False
    return True
