"""Changes the members and the leader of a broker group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from broker.cli.terminal.name_arguments import server_address
from broker.cluster_admin.member_changes import GroupMembers
from broker.command_error import UsageError
from broker.config.node_config import NODE_NAME
from broker.console.actions.action import Action, Field, Preview, Values, checked
from broker.console.visits.visit import Visit
from dledger.raft.quorum import majority
from store.quoting import quoted

_GROUP = Field("group", "Broker group", "hidden")
_NODE = Field("node", "Node", "hidden")
_ADDRESS_HINT = "Host and port for clients, of a node that runs with `join = true`."


def _node(text: str) -> None:
    if NODE_NAME.fullmatch(text) is None:
        raise ValueError(f"{quoted(text)} is no node; it may be n0, n1, n2 and so on")


def _majority_note(voters: int) -> str:
    return f"Then {majority(voters)} of {voters} voters are a majority."


class MemberAction(Action):
    """A change of one member."""

    fields: ClassVar[Sequence[Field]] = (_GROUP, _NODE)

    def __init__(self) -> None:
        self._words = self.name.removeprefix("member-")

    def arguments(self, values: Values) -> Sequence[str]:
        return ["member", self._words, values.get("group", ""), checked(_node, values, "node")]

    async def preview(self, visit: Visit, values: Values) -> Preview:
        members = await self._members(visit, values).members()
        return self.question(members, values)

    @abstractmethod
    def question(self, members: dict[str, Any], values: Values) -> Preview:
        """The question, made from the leader's answer about the members."""

    def _members(self, visit: Visit, values: Values) -> GroupMembers:
        return GroupMembers(visit.admin, values["group"])


class Transfer(MemberAction):
    """``dledger leader transfer``."""

    name, title, verb = "member-transfer", "Make another node the leader", "Make it the leader"

    def arguments(self, values: Values) -> Sequence[str]:
        return ["leader", "transfer", values.get("group", ""), checked(_node, values, "node")]

    def question(self, members: dict[str, Any], values: Values) -> Preview:
        return Preview(
            f"Make {values['node']} the leader of {values['group']} in the place of "
            f"{members['leader']}?",
            note="It catches up first. No message is refused for longer than that takes.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        members = await self._members(visit, values).transfer(values["node"])
        return f"{values['node']} leads {values['group']} in term {members['term']}."


class Add(MemberAction):
    """``dledger member add``."""

    name, title, verb = "member-add", "Add a node", "Add"
    fields = (
        _GROUP,
        Field("node", "Node", required=True, hint="Such as n3."),
        Field("address", "Address", required=True, hint=_ADDRESS_HINT),
        Field("learner", "Leave it a learner", "check", hint="Gets the log, counts for nothing."),
    )

    def arguments(self, values: Values) -> Sequence[str]:
        words = [*super().arguments(values), checked(server_address, values, "address")]
        return [*words, "--learner"] if values.get("learner") else words

    def question(self, members: dict[str, Any], values: Values) -> Preview:
        if values["node"] in members["voters"]:
            raise UsageError(f"{values['node']} is a voter of {values['group']} already")
        what = "learner" if values.get("learner") else "voter"
        note = "It is a learner until it has the whole log."
        if what == "voter":
            note += f" {_majority_note(len(members['voters']) + 1)}"
        return Preview(
            f"Add {values['node']} at {values['address']} to {values['group']} as a {what}?",
            note=note,
        )

    async def run(self, visit: Visit, values: Values) -> str:
        members = self._members(visit, values)
        await members.add(values["node"], values["address"])
        if not values.get("learner"):
            await members.promote(values["node"])
        return f"{values['node']} is a {'learner' if values.get('learner') else 'voter'}."


class Promote(MemberAction):
    """``dledger member promote``."""

    name, title, verb = "member-promote", "Make a voter of a learner", "Make it a voter"

    def question(self, members: dict[str, Any], values: Values) -> Preview:
        return Preview(
            f"Make {values['node']} a voter of {values['group']}?",
            note=_majority_note(len(members["voters"]) + 1),
        )

    async def run(self, visit: Visit, values: Values) -> str:
        await self._members(visit, values).promote(values["node"])
        return f"{values['node']} is a voter of {values['group']}."


class Remove(MemberAction):
    """``dledger member remove``."""

    name, title, verb, danger = "member-remove", "Take a node out", "Take it out", True

    def arguments(self, values: Values) -> Sequence[str]:
        return [*super().arguments(values), "--yes"]

    def question(self, members: dict[str, Any], values: Values) -> Preview:
        voters = [each for each in members["voters"] if each != values["node"]]
        if not voters:
            raise UsageError(f"{values['node']} is the last voter of {values['group']}")
        note = _majority_note(len(voters))
        if members["leader"] == values["node"]:
            note += " It leads: another node takes over first."
        return Preview(
            f"Take {values['node']} out of {values['group']}?",
            note=f"{note} Its process ends by itself once it learns of it; one that is down or "
            "cut off now may never learn: stop it. Its data stays.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        await self._members(visit, values).remove(values["node"])
        return f"{values['node']} is no longer a member of {values['group']}."


class Replace(MemberAction):
    """``dledger member replace``."""

    name, title, verb, danger = "member-replace", "Replace a node", "Replace", True
    fields = (_GROUP, _NODE, Field("address", "New address", required=True, hint=_ADDRESS_HINT))

    def arguments(self, values: Values) -> Sequence[str]:
        return [*super().arguments(values), checked(server_address, values, "address")]

    def question(self, members: dict[str, Any], values: Values) -> Preview:
        known = members["members"].get(values["node"], {}).get("address") or "no known address"
        return Preview(
            f"Put the new node at {values['address']} in the place of {values['node']} "
            f"of {values['group']}, at {known}?",
            note="The old one is taken out, and the new one gets the whole log from the others.",
        )

    async def run(self, visit: Visit, values: Values) -> str:
        members, node = self._members(visit, values), values["node"]
        known = (await members.members())["members"]
        same_place = node in known and known[node]["address"] == values["address"]
        if same_place and await members.refilled(node, values["address"]):
            return f"{node} answers there and is a voter with all its data: nothing is replaced."
        await members.node_at(node, values["address"])  # nothing is removed for a mistyped address
        if node in known:
            await members.remove(node)
        await members.add(node, values["address"])
        await members.promote(node)
        return f"{node} is a voter with all data, at {values['address']}."


ACTIONS = (Transfer(), Add(), Promote(), Remove(), Replace())
