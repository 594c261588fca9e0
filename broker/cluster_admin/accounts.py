"""Accounts of a cluster: every broker group has all accounts in its own log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cluster_admin.admin_client import AdminClient, document_of
from broker.command_error import CommandError
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
    return await _accounts_at(admin, await admin.masters())


async def _accounts_at(
    admin: AdminClient, leaders: Mapping[str, str]
) -> dict[str, list[AccountView]]:
    found = {}
    for name, address in leaders.items():
        answer = await admin.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        told = document_of(answer).get("plainAccessConfigs", [])
        found[name] = [AccountView.of(each) for each in told]
    return found


async def require_new(admin: AdminClient, access_key: str) -> None:
    """Raises :class:`~broker.command_error.CommandError` if a group has the
    account."""
    having, lacking = await _groups_with_and_without(admin, access_key)
    if having and lacking:
        raise _in_part(access_key, lacking)
    if having:
        raise CommandError(
            f"there is an account {access_key}; `dledger security user set` changes it"
        )


async def require_everywhere(admin: AdminClient, access_key: str) -> None:
    """Raises :class:`~broker.command_error.CommandError` unless all groups have the
    account: a change would make it in the others, without permissions."""
    having, lacking = await _groups_with_and_without(admin, access_key)
    if not having:
        raise _no_account(access_key)
    if lacking:
        raise _in_part(access_key, lacking)


async def require_known(admin: AdminClient, access_key: str) -> None:
    """Raises :class:`~broker.command_error.CommandError` if no group has the
    account."""
    having, _ = await _groups_with_and_without(admin, access_key)
    if not having:
        raise _no_account(access_key)


# The changes may be repeated. Each returns the names of the groups that are gone: they keep what
# they have.


async def put_account(
    admin: AdminClient, access_key: str, fields: Mapping[str, object]
) -> Sequence[str]:
    """Creates or changes an account in every group. ``fields`` are those of request 50."""
    leaders = await admin.leaders()
    for address in leaders.addresses.values():
        await admin.ask(
            address,
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            {"accessKey": access_key, **fields},
        )
    return leaders.gone


async def reseal_accounts(admin: AdminClient) -> tuple[int, Sequence[str]]:
    """Makes the brokers seal every secret key with the newest cluster secret. Returns the number of
    keys, too."""
    leaders, count = await admin.leaders(), 0
    for name, accounts in (await _accounts_at(admin, leaders.addresses)).items():
        for account in accounts:
            await admin.ask(
                leaders.addresses[name],
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                {"accessKey": account.access_key},
            )
            count += 1
    return count, leaders.gone


async def remove_account(admin: AdminClient, access_key: str) -> Sequence[str]:
    """Removes an account from every group that has it."""
    leaders = await admin.leaders()
    for name, accounts in (await _accounts_at(admin, leaders.addresses)).items():
        if access_key in {each.access_key for each in accounts}:
            await admin.ask(
                leaders.addresses[name], RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key}
            )
    return leaders.gone


async def _groups_with_and_without(
    admin: AdminClient, access_key: str
) -> tuple[list[str], list[str]]:
    having: list[str] = []
    lacking: list[str] = []
    for name, accounts in (await find_accounts(admin)).items():
        known = access_key in {each.access_key for each in accounts}
        (having if known else lacking).append(name)
    return having, lacking


def _no_account(access_key: str) -> CommandError:
    return CommandError(
        f"there is no account {access_key}; `dledger security user list` shows all accounts"
    )


def _in_part(access_key: str, lacking: Sequence[str]) -> CommandError:
    return CommandError(
        f"the account {access_key} is not on {', '.join(lacking)}; `dledger security user remove` "
        "it and add it again, with its permissions"
    )
