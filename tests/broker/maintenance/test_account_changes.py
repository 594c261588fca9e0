"""Changes of accounts: their limits, and that they wait until all members know the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.errors import QuotaExceededError, RefusedError, UnavailableError
from broker.limits import StateLimits
from broker.maintenance import account_changes
from broker.maintenance.account_changes import AccountChanges
from broker.security.cluster_secrets import ClusterSecrets
from broker.state.commands import PutAccess
from dledger.wire.features import ACCESS_CONTROL
from tests.broker.remoting.test_access import ADMIN, guarded
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

FIELDS = {"secretKey": "some-secret"}


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return guarded()


def accounts_of(broker: SingleBroker) -> AccountChanges:
    found = broker.broker.context.accounts
    assert found is not None
    return found


async def put(broker: SingleBroker, name: str, fields: dict[str, str]) -> None:
    done: asyncio.Future[None] = broker.loop.create_future()
    accounts_of(broker).put_account(
        name, fields, lambda error: done.set_exception(error) if error else done.set_result(None)
    )
    await done


async def test_there_are_no_more_accounts_and_permissions_than_allowed(
    broker: SingleBroker,
) -> None:
    limits = StateLimits(accounts_max=2, account_permissions_max=2)

    with patch.object(account_changes, "STATE", limits):
        await put(broker, "reader-123", FIELDS)
        await put(broker, "reader-123", {"topicPerms": "a=PUB,b=PUB"})
        with pytest.raises(QuotaExceededError):
            await put(broker, "reader-124", FIELDS)
        with pytest.raises(QuotaExceededError):
            await put(broker, "reader-123", {"groupPerms": "a=SUB,b=SUB,c=SUB"})


async def test_no_more_changes_wait_than_allowed_and_one_that_fails_ends_none(
    broker: SingleBroker,
) -> None:
    limits = StateLimits(account_changes_max=2)

    told: list[object] = []
    changes = accounts_of(broker)
    with patch.object(account_changes, "STATE", limits):
        for fields in (FIELDS, {"defaultTopicPerm": "NO"}, {"admin": "true"}):
            changes.put_account("reader-123", fields, told.append)
        with pytest.raises(UnavailableError, match="too many"):
            changes.remove_account("reader-123", told.append)
        await asyncio.sleep(1)
    assert [type(each) for each in told] == [type(None), RefusedError, type(None)]


async def test_nothing_is_written_that_a_member_may_not_know(broker: SingleBroker) -> None:
    """The first account either: it waits, and comes when all know it."""

    features, state = broker.broker.context.node.features, broker.broker.context.machine.state
    with patch.object(type(features), "known_by_all", return_value=False) as asked:
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="earlier program"):
            await put(broker, "reader-123", FIELDS)
        asked.assert_called_with(ACCESS_CONTROL)
    assert list(state.access) == [ADMIN.access_key]


async def test_a_leader_writes_the_first_account_once_all_members_know_it(
    broker: SingleBroker,
) -> None:
    changes, context = accounts_of(broker), broker.broker.context
    context.machine.state.apply(PutAccess(ADMIN.access_key, b""))
    with patch.object(type(context.node.features), "known_by_all", return_value=False):
        changes.leadership_changed(serving=True)
        await asyncio.sleep(5)
        assert not context.machine.state.access
    with pytest.raises(UnavailableError, match="not in the log yet"):
        await put(broker, "reader-123", FIELDS)  # from then on the file would not count
    await asyncio.sleep(2)
    assert list(context.machine.state.access) == [ADMIN.access_key]


async def test_without_a_profile_no_account_is_written(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((b"\x07" * 32,)))
    ) as broker:
        await asyncio.sleep(3)
        assert not broker.broker.context.machine.state.access
