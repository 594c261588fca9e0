"""An admin that changes accounts, and the common part of it and of account holders."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import CallError
from broker.security.credentials import Credentials
from simulator.hosts.client_host import ClientHost
from simulator.workload.account_requests import (
    ADMIN,
    CLUSTER,
    AccountHistory,
    AccountRequest,
    Definition,
)
from simulator.workload.name_server import NAME_SERVERS
from simulator.workload.stoppable_client import StoppableClient

TOPICS = ("ledgers", "wages")
GROUPS = ("clerks", "guests")
HOLDERS = ("alice-1", "bobby-2", "carol-3")
PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
GROUP_PERMISSIONS = ("DENY", "SUB")
REMOVED_SHARE, NEW_KEY_SHARE, ADMIN_SHARE, WHITE_SHARE = 0.15, 0.3, 0.1, 0.2
KEY_VALUE_SHARE = 0.2
ADMIN_PAUSE_SECONDS = (0.2, 0.8)
SUCCESS = 0


def body_of(number: int) -> bytes:
    """The body of a message. It names its request."""
    return b"request %d" % number


class AccountClient(StoppableClient, ABC):
    """The common part of an admin and an account holder."""

    client_host: ClientHost
    remoting: RemotingClient
    """Of the present process."""

    def __init__(
        self,
        history: AccountHistory,
        rng: Random,
        addresses: Callable[[], Sequence[str]],
    ) -> None:
        """``addresses`` are those of the brokers that must run."""
        self.history = history
        self.rng = rng
        self.addresses = addresses

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        self.client_host = client_host
        self.remoting = RemotingClient(asyncio.get_running_loop())
        await self.work()

    @abstractmethod
    async def work(self) -> None:
        """All that its process does."""

    def request(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes | None = None,
        *,
        address: str = "",
        keys: Credentials | None = None,
    ) -> AccountRequest:
        """A new request, signed with ``keys``; by default a message for a broker by chance."""
        number = self.history.next_number()
        said = body_of(number) if body is None else body
        return AccountRequest(
            number,
            self.client_host.name,
            self.client_host.ip,
            address or self.rng.choice(self.addresses()),
            code,
            ext if keys is None else keys.sign(ext, (said,)),
            said,
        )

    async def ask(self, request: AccountRequest) -> bool:
        """Sends a request. Returns whether it succeeded."""
        try:
            answer = await self.history.send(self.client_host, self.remoting, request)
        except CallError:
            return False
        return answer.code == SUCCESS


class AccountAdmin(AccountClient):
    """Makes, changes and removes accounts; in the end all may do everything."""

    finished = False
    """Whether accounts do not change any more."""

    async def work(self) -> None:
        """See :class:`AccountClient`. The next process begins with the accounts of this one."""
        while self._working:
            await asyncio.sleep(self.rng.uniform(*ADMIN_PAUSE_SECONDS))
            access_key = self.rng.choice(HOLDERS)
            if self.rng.random() < REMOVED_SHARE:
                code, ext = RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key}
                asked = self.request(code, ext, b"", keys=ADMIN)
                done = await self.ask(asked)
            else:
                done = await self._put(access_key, self._drawn(access_key))
            if not done:
                await self._be_admin()
            if self.rng.random() < KEY_VALUE_SHARE:
                ext = {"namespace": "numbers", "key": "one", "value": "1"}
                code, address = RequestCode.PUT_KV_CONFIG, NAME_SERVERS
                asked = self.request(code, ext, b"", address=address, keys=ADMIN)
                await self.ask(asked)
        # An account that was an admin for a while may have changed others; this may be stored late.
        while not self.finished:
            await self._be_admin()
            for place, access_key in enumerate(HOLDERS):
                definition = Definition(f"last-secret-{place}", False, "PUB|SUB", "SUB")
                await self._put(access_key, definition)
            await asyncio.sleep(0.5)

    async def _be_admin(self) -> None:
        """Makes its account anew with the cluster's secret: an account that was an admin for a
        while may have removed it."""
        ext = Definition(ADMIN.secret_key, True).fields(ADMIN.access_key)
        code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        asked = self.request(code, ext, b"", keys=CLUSTER)
        await self.ask(asked)

    def _drawn(self, access_key: str) -> Definition:
        rng, before = self.rng, self.history.keys.get(access_key)
        if before is None or rng.random() < NEW_KEY_SHARE:
            secret_key = f"secret-{access_key}-{rng.getrandbits(40):010x}"
        else:
            secret_key = before[-1]
        return Definition(
            secret_key,
            rng.random() < ADMIN_SHARE,
            rng.choice(PERMISSIONS),
            rng.choice(GROUP_PERMISSIONS),
            tuple((topic, rng.choice(PERMISSIONS)) for topic in TOPICS if rng.random() < 0.6),
            tuple((group, rng.choice(GROUP_PERMISSIONS)) for group in GROUPS if rng.random() < 0.6),
            white_address_of(access_key) if rng.random() < WHITE_SHARE else "",
        )

    async def _put(self, access_key: str, definition: Definition) -> bool:
        self.history.keys.setdefault(access_key, []).append(definition.secret_key)
        code, ext = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, definition.fields(access_key)
        asked = self.request(code, ext, b"", keys=ADMIN)
        return await self.ask(asked)


def white_address_of(access_key: str) -> str:
    """The address in the white list of an account. No client has it."""
    return f"10.0.99.{HOLDERS.index(access_key) + 1}"
