"""Access control of one server: who asks, and whether that may be done.

Each wire asks in one place, before a request is handled. The accounts are those that this node has
applied. While there is none at all, the account of the server's own ``admin.toml`` counts. So a
cluster can be given its first accounts, and a NameServer, which has none, knows an admin. Rejected:
while there is none of that name; whoever removes that account would open the door for its old key.
Whoever signs with the cluster's secret is trusted.
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
from broker.security.cluster_secrets import CLUSTER_ACCESS_KEY, ClusterSecrets
from broker.security.credentials import Credentials
from broker.security.key_sealing import KeySealer, SealedKeyError
from broker.security.signature import ACCESS_KEY, is_signed_by
from broker.security.tokens import TokenError, read_token
from broker.security.white_list import matches, split_white_list
from store.quoting import FROM_OUTSIDE, quoted

log = logging.getLogger("dledger.access")


@dataclass(frozen=True, slots=True)
class _Known:
    """An account, its opened key, and the definition that both are from."""

    definition: bytes
    account: Account
    secret_key: bytes
    white_list: tuple[str, ...]


class AccessControl:
    """Of one server, where access control is permissive or enforcing."""

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
        self.enforcing = enforcing
        self.sealer = KeySealer(secrets.secrets, random_bytes)
        self.refused = 0
        """Requests that were refused, or would have been, since the start."""
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
        """Who asks. Raises :class:`~broker.errors.AccessDeniedError` for what must not be done.

        ``caller`` tells who asks, or raises the same; ``needed`` what that needs. ``address`` is
        for the log. Where access control is permissive a refusal is told there only, unless
        ``always``, and all that anybody wants later is allowed.
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
        """Who signed a request that came from ``host``."""
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
        """Who told its keys."""
        known = self._find(access_key, host)
        if isinstance(known, Caller):
            return known
        right, account = known
        if not hmac.compare_digest(right, secret_key.encode(errors="replace")):
            raise UnauthenticatedError(f"the secret key of {quoted(access_key)} is wrong")
        return Caller(access_key, account)

    def with_token(self, text: str, host: str) -> Caller:
        """Who made the token."""
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
        """Who signed those bytes; ``signature`` is hexadecimal."""
        known = self._find(access_key, host)
        if isinstance(known, Caller):
            return known
        secret_key, account = known
        right = hmac.digest(secret_key, signed, "sha1").hex()
        if not hmac.compare_digest(right, signature.lower()):
            raise UnauthenticatedError(f"the signature by {quoted(access_key)} is wrong")
        return Caller(access_key, account)

    def credentials(self, caller: Caller) -> Credentials | None:
        """The keys with which this server asks others for ``caller``, which has proved to be that
        account; None where no account is known. So the others check what the account may."""
        if caller.account is None:
            return None
        definition = self._table().get(caller.name)
        if definition is None:
            return self._local_admin(caller.name)
        secret_key = self._open(caller.name, definition).secret_key
        return Credentials(caller.name, secret_key.decode())

    def unknown(self, host: str) -> Caller:
        """Who says nothing of who it is."""
        return self._unsigned(host, "the request names no account")

    def _unsigned(self, host: str, why: str) -> Caller:
        if self._is_white(host):
            return Caller(ANONYMOUS.name, trusted=True)
        raise UnauthenticatedError(why)

    def _find(self, access_key: str, host: str) -> Caller | tuple[bytes, Account]:
        """Key and account; the caller itself where its address is enough."""
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
        """The account of ``admin.toml``, if it has that name and counts."""
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
