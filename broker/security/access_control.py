"""The access control of one server: identifies callers and checks their permissions.

Each wire checks in one place, before a request is handled. The accounts are those that this node
has applied. As long as there are no accounts at all, the account of the server's own ``admin.toml``
counts. So the first accounts of a cluster can be created, and a NameServer, which has no accounts,
knows an admin. Rejected: the account of ``admin.toml`` counts as long as there is none of that
name. Then the old key of a removed account would be valid again. A caller that signs with the
cluster secret is trusted.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.errors import AccessDeniedError, UnauthenticatedError
from broker.security.accounts import (
    WHITE_LIST,
    Account,
    AccountError,
    has_accounts,
    unpack_account,
    unpack_white_list,
)
from broker.security.authorize import ANONYMOUS, EVERYBODY, Access, Caller, authorize
from broker.security.cluster_secrets import CLUSTER_ACCESS_KEY, ClusterSecrets, SealedKeyError
from broker.security.credentials import Credentials
from broker.security.signature import ACCESS_KEY, ON_BEHALF, is_signed_by
from broker.security.tokens import TokenError, read_token
from broker.security.white_list import matches, split_white_list
from store.quoting import FROM_OUTSIDE, quoted

log = logging.getLogger("dledger.access")


@dataclass(frozen=True, slots=True)
class _Known:
    """An account, its opened key, and the definition of both."""

    definition: bytes
    account: Account
    secret_key: bytes
    white_list: tuple[str, ...]


class AccessControl:
    """The access control of one server, permissive or enforcing."""

    def __init__(
        self,
        *,
        enforcing: bool,
        secrets: ClusterSecrets,
        now_ms: Callable[[], int],
        table: Callable[[], Mapping[str, bytes]] = dict,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """``table`` gives definitions by name (:mod:`broker.security.accounts`). ``now_ms`` gives
        milliseconds since 1970. ``random_bytes``: see
        :class:`~broker.security.key_sealing.KeySealer`."""
        from broker.security.key_sealing import KeySealer  # noqa: PLC0415 - loads the ciphers

        self.enforcing = enforcing
        self.sealer = KeySealer(secrets.secrets, random_bytes)
        self.refused = 0
        """The number of requests since the start that were refused, or would be if enforcing."""
        self._table = table
        self._now_ms = now_ms
        self._secrets = secrets
        self._known: dict[str, _Known] = {}
        self._white_list: tuple[bytes | None, list[str]] = (None, [])

    def check(
        self,
        caller: Callable[[], Caller],
        needed: Callable[[], Iterable[Access]],
        address: str,
        *,
        always: bool = False,
    ) -> Caller:
        """The caller of a request. Raises :class:`~broker.errors.AccessDeniedError` if it lacks a
        permission.

        ``caller`` gives the caller, or raises the same error; ``needed`` gives the needed
        permissions. ``address`` is for the log. If access control is permissive, a refusal is only
        logged, unless ``always`` is set, and the result may do everything.
        """
        try:
            found = caller()
            for access in needed():
                why = authorize(found, access)
                if why:
                    raise AccessDeniedError(why)
        except AccessDeniedError as error:
            self.refused += 1
            must = self.enforcing or always
            told = "refused" if must else "would be refused"
            log.warning("%s: %s: %s", address, told, error, extra=FROM_OUTSIDE)
            if must:
                raise
            return EVERYBODY
        return found if self.enforcing else EVERYBODY

    def signed(self, ext: Mapping[str, object], body: bytes, host: str) -> Caller:
        """The caller that signed a request from ``host``, which counts only if its own user
        asks."""
        if ON_BEHALF in ext:
            host = ""
        access_key = ext.get(ACCESS_KEY)
        if type(access_key) is not str:
            return self._unsigned(host, "the request is not signed: it has no AccessKey")
        if access_key == CLUSTER_ACCESS_KEY:
            if self._secrets.signs(ext, body):
                return Caller(access_key, trusted=True)
            raise UnauthenticatedError("the request is not signed with this cluster's secret")
        known = self._find(access_key, host)
        if isinstance(known, Caller):
            return known
        secret_key, account = known
        if not is_signed_by(secret_key, ext, body):
            raise UnauthenticatedError(f"the signature by {quoted(access_key)} is wrong")
        return Caller(access_key, account)

    def with_password(self, access_key: str, secret_key: str, host: str) -> Caller:
        """The caller with these keys."""
        known = self._find(access_key, host)
        if isinstance(known, Caller):
            return known
        right, account = known
        if not hmac.compare_digest(right, secret_key.encode(errors="replace")):
            raise UnauthenticatedError(f"the secret key of {quoted(access_key)} is wrong")
        return Caller(access_key, account)

    def with_token(self, text: str, host: str) -> Caller:
        """The caller that made the token."""
        try:
            token = read_token(text)
            known = self._find(token.access_key, host)
            if isinstance(known, Caller):
                return known
            secret_key, account = known
            token.check(secret_key, self._now_ms())
        except TokenError as error:
            raise UnauthenticatedError(str(error)) from None
        return Caller(token.access_key, account)

    def with_hmac_sha1(self, access_key: str, signed: bytes, signature: str, host: str) -> Caller:
        """The caller that signed these bytes; ``signature`` is hexadecimal."""
        known = self._find(access_key, host)
        if isinstance(known, Caller):
            return known
        secret_key, account = known
        right = hmac.digest(secret_key, signed, "sha1").hex()
        if not hmac.compare_digest(right, signature.lower()):
            raise UnauthenticatedError(f"the signature by {quoted(access_key)} is wrong")
        return Caller(access_key, account)

    def credentials(self, caller: Caller) -> Credentials | None:
        """The keys with which this server asks others on behalf of ``caller``, whose identity it
        has checked; None without an account. So the others check the account's permissions."""
        if caller.account is None:
            return None
        definition = self._table().get(caller.name)
        if definition is None:
            return self._local_admin(caller.name)
        secret_key = self._open(caller.name, definition).secret_key
        return Credentials(caller.name, secret_key.decode())

    def unknown(self, host: str) -> Caller:
        """The caller of a request without an account."""
        return self._unsigned(host, "the request names no account")

    def _unsigned(self, host: str, why: str) -> Caller:
        if self._is_white(host):
            return Caller(ANONYMOUS.name, trusted=True)
        raise UnauthenticatedError(why)

    def _find(self, access_key: str, host: str) -> Caller | tuple[bytes, Account]:
        """Key and account; or the caller, if its address is enough."""
        if self._is_white(host):
            return Caller(access_key, trusted=True)
        definition = self._table().get(access_key) if access_key != WHITE_LIST else None
        if definition is None:
            self._known.pop(access_key, None)
            local = self._local_admin(access_key)
            if local is not None:
                return local.secret_key.encode(), Account(access_key, b"", admin=True)
            raise UnauthenticatedError(f"there is no account {quoted(access_key)}")
        known = self._known.get(access_key)
        if known is None or known.definition is not definition:
            known = self._known[access_key] = self._open(access_key, definition)
        if any(matches(pattern, host) for pattern in known.white_list):
            return Caller(access_key, known.account)
        return known.secret_key, known.account

    def _local_admin(self, access_key: str) -> Credentials | None:
        """The account of ``admin.toml``, if it has that name and there are no other accounts."""
        local = self._secrets.admin
        is_it = local is not None and local.access_key == access_key
        return local if is_it and not has_accounts(self._table()) else None

    def _open(self, access_key: str, definition: bytes) -> _Known:
        try:
            account = unpack_account(access_key, definition)
            secret_key = self.sealer.open(access_key, account.sealed_key)
            white_list = tuple(split_white_list(account.white_list))
        except (AccountError, SealedKeyError, ValueError) as error:
            log.error("the account %s cannot be used: %s", quoted(access_key), error)
            raise UnauthenticatedError(
                f"the account {quoted(access_key)} cannot be used on this node: {error}"
            ) from None
        return _Known(definition, account, secret_key, white_list)

    def _is_white(self, host: str) -> bool:
        definition = self._table().get(WHITE_LIST)
        if definition is None:
            return False
        if self._white_list[0] is not definition:
            try:
                self._white_list = definition, unpack_white_list(definition)[0]
            except AccountError as error:
                log.error("%s", error)
                self._white_list = definition, []
        return any(matches(pattern, host) for pattern in self._white_list[1])
