"""Changes the members of a group for the command line: asks its leader, and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from broker.cluster_admin.admin_client import (
    AdminClient,
    NoLeaderError,
    RefusedError,
    UnreachableError,
    document_of,
    when_led,
)
from broker.cluster_admin.cluster_view import view_node
from broker.command_error import CommandError, UsageError
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.java_json import decode_json

T = TypeVar("T")

WAIT_SECONDS = 600.0
"""How long a new member may take to get the whole log."""

ASK_AGAIN_SECONDS = 0.1

TRANSIENT_REFUSALS = (
    "has to catch up first",
    "is under way",
    "has not committed an entry",
    "is being transferred",
    "handed over",  # by earlier programs
)
"""Words in the remark of a temporary refusal."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """One broker group, asked through its leader."""

    admin: AdminClient
    group: str

    async def leader(self) -> str:
        """The leader's address; waits for an election. Raises :class:`CommandError` if there is
        still no leader."""
        return await when_led(lambda: self.admin.leader(self.group))

    async def members(self) -> dict[str, Any]:
        """The leader's answer about the members (see ``broker/admin/membership.py``)."""
        return await when_led(lambda: self._ask(RequestCode.GET_GROUP_MEMBERS))

    async def node_at(self, node: str, address: str) -> dict[str, str]:
        """What the node at ``address`` tells. Raises :class:`CommandError` if nobody answers there,
        and :class:`UsageError` if it is another node."""
        told = await view_node(self.admin, address)
        if (told["raftGroup"], told["raftNode"]) != (self.group, node):
            raise UsageError(
                f"at {address} is {told['raftGroup']}/{told['raftNode']}, not {self.group}/{node}"
            )
        return told

    async def add(self, node: str, address: str) -> dict[str, Any]:
        """Makes the waiting node at ``address`` a learner."""
        told = await self.node_at(node, address)
        own = decode_json(told["raftOwnMember"].encode())
        return await self._change(
            node,
            "add",
            peerAddr=own["peer"],
            brokerAddr=own["client"],
            httpAddr=own["http"],
        )

    async def promote(self, node: str) -> dict[str, Any]:
        """Makes a learner a voter, once it has caught up."""
        return await _within(self._promoted(node), f"{node} has not caught up")

    async def _promoted(self, node: str) -> dict[str, Any]:
        while True:
            members = await self.members()
            if not members["old_voters"]:
                if node in members["voters"]:
                    return members
                if node not in members["learners"]:
                    raise CommandError(f"{node} is not a learner of {self.group}")
                try:
                    return await self._change(node, "promote")
                except RefusedError as error:
                    if not any(reason in str(error) for reason in TRANSIENT_REFUSALS):
                        raise
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def remove(self, node: str) -> dict[str, Any]:
        """Removes a member."""
        await self._change(node, "remove")
        return await _within(self._known(), f"{self.group} has no leader")

    async def _known(self) -> dict[str, Any]:
        """The members, once there is a leader. The removed member may have been the leader."""
        while True:
            with suppress(RefusedError, UnreachableError, NoLeaderError):
                members = await self.members()
                if members["leader"] == members["node"]:
                    return members
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def transfer(self, node: str) -> dict[str, Any]:
        """Transfers the leadership to a voter."""
        return await self._ask(RequestCode.TRANSFER_LEADERSHIP, {"node": node})

    async def refilled(self, node: str, address: str) -> bool:
        """Waits until a node that lost its disk is refilled. Returns False if it does not
        answer."""
        return await _within(self._counts_again(address), f"{node} is not refilled")

    async def _counts_again(self, address: str) -> bool:
        while True:
            try:
                told = await view_node(self.admin, address)
            except UnreachableError:
                return False
            if told["raftMember"] == "voter" and told["raftLeader"]:
                return True
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _change(self, node: str, action: str, **fields: str) -> dict[str, Any]:
        ext = {"node": node, "action": action, **fields}
        return await self._ask(RequestCode.CHANGE_GROUP_MEMBERS, ext)

    async def _ask(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> dict[str, Any]:
        return document_of(await self.admin.ask(await self.leader(), code, ext))


async def _within(waiting: Coroutine[Any, Any, T], failure: str) -> T:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await waiting
    except TimeoutError as error:
        raise CommandError(f"{failure} within {WAIT_SECONDS:g} s") from error
