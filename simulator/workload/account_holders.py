"""Clients with accounts. Most of their requests are allowed.

Each also tries what must be refused: keys that were replaced, wrong keys, no signature, a body or
a field that was changed behind the signature, the name of the cluster, a request that it says it
forwards, and what only an admin may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import orjson

from broker.remoting.protocol.codes import RequestCode
from broker.security.credentials import Credentials
from simulator.workload.account_admin import (
    GROUPS,
    HOLDERS,
    TOPICS,
    AccountClient,
    white_address_of,
)
from simulator.workload.account_requests import (
    ADMIN,
    AccountHistory,
    Definition,
)
from simulator.workload.name_server import NAME_SERVERS

TRICKS_SHARE = 0.4

LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
}
"""The names of the fields of request 10, by those of 310."""


def _send_ext(topic: str) -> dict[str, str]:
    values = ("senders", topic, "TBW102", "2", "0", "0", "1", "0", "", "0")
    return dict(zip(LONG_NAMES, values, strict=True))


def _long_ext(topic: str) -> dict[str, str]:
    return {LONG_NAMES[name]: value for name, value in _send_ext(topic).items()}


def _pull_ext(topic: str, group: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "4",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "0",
    }


def _offset_ext(topic: str, group: str) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}


def _lock_body(topic: str, group: str) -> bytes:
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    return orjson.dumps({"consumerGroup": group, "clientId": "c", "mqSet": [queue]})


class AccountHolder(AccountClient):
    """A process with one account, which asks any broker for something every ``pause_max`` seconds
    at most."""

    def __init__(
        self,
        access_key: str,
        history: AccountHistory,
        rng: Random,
        addresses: Callable[[], Sequence[str]],
        *,
        pause_max: float,
    ) -> None:
        super().__init__(history, rng, addresses)
        self._access_key = access_key
        self._pause_max = pause_max
        self.served_in_the_end = False
        """Whether every broker served it after :meth:`stop`."""
        self._tricks = (
            self._old_key,
            self._wrong_key,
            self._other_name,
            self._unsigned,
            self._other_body,
            self._other_field,
            self._as_the_cluster,
            self._as_forwarder,
            self._as_admin,
            self._at_the_name_server,
        )

    async def work(self) -> None:
        """See :class:`AccountClient`."""
        while self._working:
            await asyncio.sleep(self.rng.uniform(0.01, self._pause_max))
            keys = self._keys()
            if keys is None:
                continue
            if self.rng.random() < TRICKS_SHARE:
                await self.rng.choice(self._tricks)(keys)
            else:
                asked = self.request(*self._drawn(), keys=keys)
                await self.ask(asked)
        served: set[str] = set()
        while not served >= set(self.addresses()):
            await asyncio.sleep(0.1)
            keys = self._keys()
            for address in self.addresses():
                if keys is None or address in served:
                    continue
                ext, code = _send_ext(TOPICS[0]), RequestCode.SEND_MESSAGE_V2
                asked = self.request(code, ext, address=address, keys=keys)
                if await self.ask(asked):
                    served.add(address)
        self.served_in_the_end = True

    def _keys(self) -> Credentials | None:
        known = self.history.keys.get(self._access_key)
        return Credentials(self._access_key, known[-1]) if known else None

    def _drawn(self) -> tuple[int, dict[str, str], bytes | None]:
        """Code, fields and body of something that an account may be allowed to do. None: a
        message's."""
        topic, group = self.rng.choice(TOPICS), self.rng.choice(GROUPS)
        offset = _offset_ext(topic, group)
        return self.rng.choice(
            (
                (RequestCode.SEND_MESSAGE_V2, _send_ext(topic), None),
                (RequestCode.SEND_MESSAGE_V2, _send_ext(topic), None),
                (RequestCode.SEND_MESSAGE, _long_ext(topic), None),
                (RequestCode.PULL_MESSAGE, _pull_ext(topic, group), b""),
                (RequestCode.PULL_MESSAGE, _pull_ext(topic, ""), b""),
                (RequestCode.UPDATE_CONSUMER_OFFSET, offset, b""),
                (RequestCode.QUERY_CONSUMER_OFFSET, offset, b""),
                (RequestCode.LOCK_BATCH_MQ, {}, _lock_body(topic, group)),
                (RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, b""),
            )
        )

    # --- requests that must be refused, or may be

    async def _old_key(self, _keys: Credentials) -> None:
        """Signs with a key that the account had, and perhaps still has."""
        old = self.rng.choice(self.history.keys[self._access_key])
        keys = Credentials(self._access_key, old)
        await self.ask(self.request(*self._drawn(), keys=keys))

    async def _wrong_key(self, keys: Credentials) -> None:
        """Names itself, or the admin, with a wrong key."""
        name = self.rng.choice((keys.access_key, ADMIN.access_key))
        wrong = Credentials(name, f"{keys.secret_key}x")
        await self.ask(self.request(*self._drawn(), keys=wrong))

    async def _other_name(self, keys: Credentials) -> None:
        """Signs with its key, but names another account."""
        asked = self.request(*self._drawn(), keys=keys)
        asked.ext = {**asked.ext, "AccessKey": self.rng.choice((ADMIN.access_key, *HOLDERS))}
        await self.ask(asked)

    async def _unsigned(self, keys: Credentials) -> None:
        """Names itself, or no account, without a signature."""
        code, ext, body = self._drawn()
        named = {"AccessKey": keys.access_key} if self.rng.random() < 0.5 else {}
        await self.ask(self.request(code, {**ext, **named}, body))

    async def _other_body(self, keys: Credentials) -> None:
        """Sends a message, and then the same signature with another body."""
        ext, code = _send_ext(self.rng.choice(TOPICS)), RequestCode.SEND_MESSAGE_V2
        first = self.request(code, ext, keys=keys)
        await self.ask(first)
        await self.ask(self.request(code, first.ext, address=first.address))

    async def _other_field(self, keys: Credentials) -> None:
        """Names another topic than the one that it signed."""
        ext, code = _send_ext(TOPICS[0]), RequestCode.SEND_MESSAGE_V2
        asked = self.request(code, ext, keys=keys)
        asked.ext = {**asked.ext, "b": TOPICS[1]}
        await self.ask(asked)

    async def _as_the_cluster(self, keys: Credentials) -> None:
        """Pretends to be a server of the cluster."""
        false = Credentials("dledger-cluster", keys.secret_key)
        await self.ask(self.request(*self._drawn(), keys=false))

    async def _as_forwarder(self, keys: Credentials) -> None:
        """Pretends to forward a request from an address that needs no signature."""
        victim = self.rng.choice(HOLDERS)
        inner = {**_send_ext(self.rng.choice(TOPICS)), "AccessKey": victim}
        ext = {
            "forwarded": f"{RequestCode.SEND_MESSAGE_V2.value} 1 {white_address_of(victim)}:4711",
            "fields": orjson.dumps(inner).decode(),
        }
        asked = self.request(RequestCode.FORWARD, ext, keys=keys)
        await self.ask(asked)

    async def _as_admin(self, keys: Credentials) -> None:
        """Makes requests of an admin: more permissions, another account, a topic."""
        mine = Definition(keys.secret_key, True, "PUB|SUB", "SUB").fields(keys.access_key)
        removed = {"accessKey": self.rng.choice((ADMIN.access_key, *HOLDERS))}
        topic = {"topic": "stolen", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        code, ext = self.rng.choice(
            (
                (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, mine),
                (RequestCode.DELETE_ACL_CONFIG, removed),
                (RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
            )
        )
        await self.ask(self.request(code, ext, b"", keys=keys))

    async def _at_the_name_server(self, keys: Credentials) -> None:
        """Registers a false broker, or writes a pair of key and value; signed or not."""
        registration = {
            "brokerName": "broker-z",
            "brokerAddr": "10.0.99.99:10911",
            "clusterName": "DefaultCluster",
            "haServerAddr": "10.0.99.99:10912",
            "brokerId": "0",
        }
        code, ext = self.rng.choice(
            (
                (RequestCode.REGISTER_BROKER, registration),
                (RequestCode.PUT_KV_CONFIG, {"namespace": "a", "key": "b", "value": "c"}),
            )
        )
        signing = self.rng.choice((keys, None))
        address = NAME_SERVERS
        asked = self.request(code, ext, b"", address=address, keys=signing)
        await self.ask(asked)
