"""Accounts of a cluster: every broker group has all accounts in its own log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.cli.terminal.command_error import CommandError
from broker.cluster_admin.admin_client import AdminClient, document_of
from broker.remoting.protocol.codes import RequestCode


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account as in the answer of a broker group, without its secret key. Permissions are
    ``name=PUB|SUB``."""

    access_key: str
    admin: bool
    default_topic: str
    default_group: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    white_list: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> AccountView:
        return cls(
            told["accessKey"],
            told["admin"],
            told["defaultTopicPerm"],
            told["defaultGroupPerm"],
            tuple(told["topicPerms"]),
            tuple(told["groupPerms"]),
            told["whiteRemoteAddress"],
        )

    @property
    def permissions(self) -> str:
        """All permissions in one line."""
        topics = " ".join((f"*={self.default_topic}", *self.topics))
        return f"topics {topics}; groups {' '.join((f'*={self.default_group}', *self.groups))}"


async def find_accounts(admin: AdminClient) -> dict[str, list[AccountView]]:
    """The accounts of each broker group, by the group's name, sorted."""
    found = {}
    for name, address in (await admin.masters()).items():
        answer = await admin.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        told = document_of(answer).get("plainAccessConfigs", [])
        found[name] = [AccountView.of(each) for each in told]
    return found


async def put_account(admin: AdminClient, access_key: str, fields: Mapping[str, object]) -> None:
    """Creates or changes an account in every group. ``fields`` are those of request 50."""
    for address in (await admin.masters()).values():
        await admin.ask(
            address,
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            {"accessKey": access_key, **fields},
        )


async def reseal_accounts(admin: AdminClient) -> int:
    """Makes the brokers seal every secret key with the newest cluster secret; returns the number of
    keys."""
    masters, count = await admin.masters(), 0
    for name, accounts in (await find_accounts(admin)).items():
        for account in accounts:
            await admin.ask(
                masters[name],
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                {"accessKey": account.access_key},
            )
            count += 1
    return count


async def remove_account(admin: AdminClient, access_key: str) -> None:
    """Removes an account from every group that has it.

    Raises :class:`~broker.cli.terminal.command_error.CommandError` if none has it.
    """
    holding = [
        name
        for name, accounts in (await find_accounts(admin)).items()
        if access_key in {each.access_key for each in accounts}
    ]
    if not holding:
        raise no_account(access_key)
    masters = await admin.masters()
    for name in holding:
        await admin.ask(masters[name], RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})


def no_account(access_key: str) -> CommandError:
    return CommandError(
        f"there is no account {access_key}; `dledger security user list` shows all accounts"
    )
