"""Changes of accounts and of the global white list, on the leader.

A change is a command with the whole new definition, made from the applied one. So changes are made
one after the other. Each seals the secret key again, with the newest cluster secret. The command is
proposed only if all members of the group know it.

A leader without any account writes the account of its own ``admin.toml``, if it has one. So a
cluster gets its first admin.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from broker.errors import (
    REFUSALS,
    QuotaExceededError,
    Refusal,
    RefusedError,
    UnavailableError,
)
from broker.group_commit.batcher import Batcher
from broker.limits import STATE
from broker.security.access_control import AccessControl
from broker.security.accounts import (
    WHITE_LIST,
    Account,
    AccountError,
    check_access_key,
    check_secret_key,
    has_accounts,
    pack_white_list,
    unpack_account,
)
from broker.security.cluster_secrets import CLUSTER_ACCESS_KEY, SealedKeyError
from broker.security.credentials import Credentials
from broker.security.permissions import (
    Permission,
    PermissionTextError,
    parse_permission,
    parse_permissions,
)
from broker.security.white_list import WhiteListError, split_white_list
from broker.state.broker_state import BrokerState
from broker.state.commands import PutAccess
from broker.topics_and_groups import check_group_name, check_topic_name
from dledger.errors import ProposeError
from dledger.node.member_features import MemberFeatures
from dledger.wire.features import ACCESS_CONTROL

LOOK_SECONDS = 1.0
"""Pace: how often a leader without accounts checks whether it may write the first."""

Done = Callable[[Refusal | None], None]

log = logging.getLogger(__name__)


class AccountChanges:
    """Changes the accounts of one broker with access control."""

    def __init__(
        self,
        *,
        access: AccessControl,
        state: Callable[[], BrokerState],
        batcher: Batcher,
        features: MemberFeatures,
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
        first_admin: Credentials | None,
    ) -> None:
        """``state`` gives the applied state, ``wall_clock`` milliseconds since 1970."""
        self._access = access
        self._state = state
        self._batcher = batcher
        self._features = features
        self._loop = loop
        self._wall_clock = wall_clock
        self._first_admin = first_admin
        self._waiting: deque[tuple[Callable[[], PutAccess], Done]] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    # --- changes by an admin

    def put_account(self, access_key: str, fields: Mapping[str, str], done: Done) -> None:
        """Creates an account, or changes the given ``fields``, named as in RocketMQ's request 50.

        ``done`` is called once. Raises one of :data:`~broker.errors.REFUSALS`; ``done`` is not
        called then.
        """
        self._change(partial(self._account_command, access_key, dict(fields)), done)

    def remove_account(self, access_key: str, done: Done) -> None:
        """Removes an account, otherwise as :meth:`put_account`."""
        self._change(partial(self._removal, access_key), done)

    def put_white_list(self, text: str, done: Done) -> None:
        """Sets the global white list, patterns separated by commas, otherwise as
        :meth:`put_account`."""
        self._change(partial(self._white_list_command, text), done)

    # --- the first account

    def leadership_changed(self, *, serving: bool) -> None:
        """A new leader may have to write the first account."""
        self.stop()
        if serving and self._first_admin is not None:
            self._look(self._first_admin)

    def stop(self) -> None:
        """Stops writing the first account."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, first: Credentials) -> None:
        self._timer = None
        if has_accounts(self._state().access):
            return
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look, first)
        if not self._busy and self._features.known_by_all(ACCESS_CONTROL):
            fields = {"secretKey": first.secret_key, "admin": "true"}
            try:
                self.put_account(first.access_key, fields, self._first_ended)
            except REFUSALS as error:
                self._first_ended(error)

    def _first_ended(self, error: Refusal | None) -> None:
        if error is None:
            log.info("wrote the account of admin.toml to the log, as the first of this group")
        else:
            log.debug("the account of admin.toml is not written now: %s", error)

    # --- the queue of changes

    def _change(self, make: Callable[[], PutAccess], done: Done) -> None:
        self._batcher.check_serving()
        if not self._features.known_by_all(ACCESS_CONTROL):
            raise UnavailableError(
                "perhaps not all members of the group support accounts: a member is away, or "
                "has an earlier program"
            )
        if len(self._waiting) >= STATE.account_changes_max:
            raise UnavailableError("too many changes of accounts wait")
        if self._busy:
            self._waiting.append((make, done))
        else:
            self._propose(make, done)

    def _propose(self, make: Callable[[], PutAccess], done: Done) -> None:
        def ended(error: ProposeError | None) -> None:
            self._busy = False
            done(error)
            while self._waiting and not self._busy:
                following, told = self._waiting.popleft()
                try:
                    self._propose(following, told)
                except REFUSALS as refusal:
                    told(refusal)

        try:
            command = make()
        except (AccountError, PermissionTextError, SealedKeyError, WhiteListError) as error:
            raise RefusedError(str(error)) from error
        self._batcher.add_command(command, ended)
        self._busy = True

    # --- the commands

    def _account_command(self, access_key: str, fields: Mapping[str, str]) -> PutAccess:
        check_access_key(access_key)
        if access_key == CLUSTER_ACCESS_KEY:
            raise RefusedError(f"{access_key} is the name of the cluster's servers")
        table = self._state().access
        first = self._first_admin
        if first is not None and access_key != first.access_key and not has_accounts(table):
            # Once the log has an account, admin.toml does not count any more.
            raise UnavailableError("the account of admin.toml is not in the log yet")
        definition = table.get(access_key)
        if definition is None:
            if len(table) >= STATE.accounts_max:
                raise QuotaExceededError(f"there are {len(table)} accounts, no more are allowed")
            if not fields.get("secretKey"):
                raise RefusedError(f"the account {access_key} is new, and needs a secretKey")
            account = Account(access_key, b"")
        else:
            account = unpack_account(access_key, definition)
        changed = self._changed(account, fields)
        if account.admin and not changed.admin:
            self._check_not_last_admin(access_key)
        account = changed
        return PutAccess(access_key, replace(account, changed_ms=self._wall_clock()).pack())

    def _changed(self, account: Account, fields: Mapping[str, str]) -> Account:
        secret_key, sealer = fields.get("secretKey"), self._access.sealer
        if secret_key:
            check_secret_key(secret_key)
            sealed = sealer.seal(account.access_key, secret_key)
        else:
            sealed = sealer.reseal(account.access_key, account.sealed_key)
        account = replace(account, sealed_key=sealed)
        if "admin" in fields:
            account = replace(account, admin=fields["admin"].lower() == "true")
        if fields.get("defaultTopicPerm"):
            account = replace(account, default_topic=parse_permission(fields["defaultTopicPerm"]))
        if fields.get("defaultGroupPerm"):
            account = replace(account, default_group=parse_permission(fields["defaultGroupPerm"]))
        if "topicPerms" in fields:
            topics = _permissions(fields["topicPerms"], check_topic_name)
            account = replace(account, topics=topics)
        if "groupPerms" in fields:
            groups = _permissions(fields["groupPerms"], check_group_name)
            account = replace(account, groups=groups)
        if "whiteRemoteAddress" in fields:
            patterns = split_white_list(fields["whiteRemoteAddress"])
            account = replace(account, white_list=",".join(patterns))
        return account

    def _removal(self, access_key: str) -> PutAccess:
        if access_key == WHITE_LIST or access_key not in self._state().access:
            raise RefusedError(f"there is no account {access_key}")
        if unpack_account(access_key, self._state().access[access_key]).admin:
            self._check_not_last_admin(access_key)
        return PutAccess(access_key, b"")

    def _check_not_last_admin(self, access_key: str) -> None:
        accounts = self._state().access.items()
        if not any(
            unpack_account(name, definition).admin
            for name, definition in accounts
            if name not in {WHITE_LIST, access_key}
        ):
            raise RefusedError(f"{access_key} is the last admin: create another one first")

    def _white_list_command(self, text: str) -> PutAccess:
        patterns = split_white_list(text)
        if not patterns:
            return PutAccess(WHITE_LIST, b"")
        return PutAccess(WHITE_LIST, pack_white_list(patterns, self._wall_clock()))


def _permissions(text: str, check: Callable[[str], None]) -> dict[str, Permission]:
    found = parse_permissions(text)
    if len(found) > STATE.account_permissions_max:
        raise QuotaExceededError(
            f"{len(found)} permissions, at most {STATE.account_permissions_max} are allowed"
        )
    for name in found:
        check(name)
    return found
