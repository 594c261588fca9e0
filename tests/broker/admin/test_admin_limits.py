"""What operators get at most, of this node and of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from broker.admin.consumer_groups import ConsumerGroups, TooManyQueuesError
from broker.http.cluster import ClusterHandler
from broker.limits import ADMIN, AdminLimits
from tests.broker.remoting.processors.test_consumer_offsets import committed, stored
from tests.broker.single_broker import SingleBroker


async def test_an_answer_lists_so_many_queues(broker: SingleBroker) -> None:
    await stored(broker)
    await committed(broker, "1")
    context = broker.broker.context
    for most, refused in ((4, False), (3, True)):
        groups = ConsumerGroups(
            context.machine, context.clients, AdminLimits(queues_listed_max=most)
        )
        topics = [topic for group in groups.all() for topic in group.topics]
        if refused:
            with pytest.raises(TooManyQueuesError, match="more than 3 queues"):
                groups.list_queues(topics)
        else:
            assert len(groups.list_queues(topics)) == 4


def test_a_node_that_answers_with_too_much_counts_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.http.cluster.ADMIN", ADMIN._replace(answer_bytes_max=10))

    class Session:
        def __init__(self, *chunks: bytes) -> None:
            self.chunks = chunks

        @asynccontextmanager
        async def get(
            self, _url: str, *, headers: Mapping[str, str], allow_redirects: bool
        ) -> AsyncIterator[Any]:
            assert not headers
            assert not allow_redirects
            yield SimpleNamespace(content=self)

        async def iter_any(self) -> AsyncIterator[bytes]:
            for chunk in self.chunks:
                yield chunk

    def got(*chunks: bytes) -> Any:
        session: Any = Session(*chunks)
        return asyncio.run(
            ClusterHandler._get(object.__new__(ClusterHandler), session, "http://n1", {})
        )

    assert got(b'{"a":', b"1}") == {"a": 1}
    with pytest.raises(OSError, match="the answer has more than 11 bytes"):
        got(b'{"a":', b"12345}", b"more")
