"""Requests 50 to 54 about accounts, which mqadmin sends for ``updateAclConfig``,
``deleteAclConfig``, ``getAclConfig``, ``clusterAclConfigVersion`` and ``updateGlobalWhiteAddr``.

No answer has a secret key.
"""

from __future__ import annotations

from broker.context import BrokerContext
from broker.errors import RefusedError
from broker.maintenance.account_changes import AccountChanges
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.security.accounts import (
    WHITE_LIST,
    Account,
    AccountError,
    unpack_account,
    unpack_white_list,
)
from broker.security.permissions import permission_text, permission_texts

_FIELDS = (
    "secretKey",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
    "whiteRemoteAddress",
)


class AccessConfigProcessor:
    """Shows and changes accounts for admins."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def update(self, connection: Connection, request: Frame) -> None:
        """Code 50: creates an account, or changes the given fields of it."""
        fields = {
            name: ext_str(request, name) for name in _FIELDS if request.ext.get(name) is not None
        }
        access_key = ext_str(request, "accessKey")
        self._accounts.put_account(access_key, fields, respond_when_done(connection, request))

    def delete(self, connection: Connection, request: Frame) -> None:
        """Code 51."""
        self._accounts.remove_account(
            ext_str(request, "accessKey"), respond_when_done(connection, request)
        )

    def version(self, connection: Connection, request: Frame) -> None:
        """Code 52: the version of the accounts: their number, and the time of the last change."""
        config, table = self._context.config, self._context.machine.state.access
        newest = max([each.changed_ms for each in self._known()[0]], default=0)
        newest = max(newest, unpack_white_list(table.get(WHITE_LIST))[1])
        version = encode_json({"counter": len(table), "timestamp": newest}).decode()
        connection.respond(
            request,
            ext={
                "version": version,
                "allAclFileVersion": encode_json({"dledger": version}).decode(),
                "brokerName": config.group,
                "brokerAddr": str(config.own.address),
                "clusterName": config.cluster,
            },
        )

    def update_white_list(self, connection: Connection, request: Frame) -> None:
        """Code 53."""
        text = ext_str(request, "globalWhiteAddrs", "")
        self._accounts.put_white_list(text, respond_when_done(connection, request))

    def config(self, connection: Connection, request: Frame) -> None:
        """Code 54: all accounts, without their secret keys."""
        accounts, patterns = self._known()
        body = {
            "globalWhiteAddrs": patterns,
            "plainAccessConfigs": [
                {
                    "accessKey": each.access_key,
                    "admin": each.admin,
                    "defaultGroupPerm": permission_text(each.default_group),
                    "defaultTopicPerm": permission_text(each.default_topic),
                    "groupPerms": permission_texts(each.groups),
                    "topicPerms": permission_texts(each.topics),
                    "whiteRemoteAddress": each.white_list,
                }
                for each in accounts
            ],
        }
        connection.respond(request, body=(encode_json(body),))

    def _known(self) -> tuple[list[Account], list[str]]:
        """Accounts by access key, and the patterns of the white list."""
        table = self._context.machine.state.access
        try:
            accounts = [
                unpack_account(name, definition)
                for name, definition in sorted(table.items())
                if name != WHITE_LIST
            ]
            return accounts, unpack_white_list(table.get(WHITE_LIST))[0]
        except AccountError as error:
            raise RefusedError(str(error)) from error

    @property
    def _accounts(self) -> AccountChanges:
        accounts = self._context.accounts
        if accounts is None:
            raise RefusedError(
                "access control is off on this broker: its node.toml has no [security] with "
                "access_control"
            )
        return accounts
