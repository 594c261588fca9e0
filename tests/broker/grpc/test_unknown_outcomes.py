"""The outcome of a call that may have been carried out stays unknown, whatever a retry is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from broker.errors import NoAnswerError, QuotaExceededError
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, Status
from broker.ingest.awaited_send import AwaitedSend
from dledger.errors import BusyError, NotLeaderError, OutcomeUnknownError
from tests.broker.grpc.single_service import SingleService, message

UNKNOWN = OutcomeUnknownError(7, 1)
NOT_LEADER = NotLeaderError(None)
NO_ROOM = QuotaExceededError("too many")


class Tries:
    """Takes the place of ingest. ``fates`` tells for each try what becomes of its messages: a
    refusal, or None if the message is stored. The last one stands for all later tries."""

    def __init__(
        self, service: SingleService, monkeypatch: pytest.MonkeyPatch, *fates: Any, count: int = 1
    ) -> None:
        self._submit: Callable[..., float] = service.context.ingest.submit
        self._fates = self._endless([each if count > 1 else (each,) for each in fates])
        monkeypatch.setattr(service.context.ingest, "submit", self.submit)

    @staticmethod
    def _endless(fates: Sequence[Sequence[Exception | None]]) -> Iterator[Exception | None]:
        for fate in fates:
            yield from fate
        while True:
            yield from fates[-1]

    def submit(self, request: Any, body: bytes, host: bytes, send: AwaitedSend) -> float:
        fate = next(self._fates)
        if fate is None:
            return self._submit(request, body, host, send)
        if isinstance(fate, OutcomeUnknownError):
            send.failed(fate)
            return 0.0
        raise fate


async def code_of(service: SingleService) -> int:
    await service.broker.create_topic("orders", queues=1)
    code: int = (await service.send(message())).status.code
    return code


@pytest.mark.parametrize("refusal", [NOT_LEADER, BusyError(1, 1), NO_ROOM])
async def test_the_refusal_of_a_retry_does_not_hide_it(
    service: SingleService, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """Both followers are gone: the leader loses its leadership, and knows no other leader."""
    Tries(service, monkeypatch, UNKNOWN, refusal)
    assert await code_of(service) == Code.MASTER_PERSISTENCE_TIMEOUT


async def test_a_retry_that_succeeds_tells_it(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tries(service, monkeypatch, UNKNOWN, None)
    assert await code_of(service) == Code.OK


async def test_a_refusal_of_the_first_try_is_told(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tries(service, monkeypatch, NO_ROOM)
    assert await code_of(service) == Code.TOO_MANY_REQUESTS


@pytest.mark.parametrize("told", [Code.TOO_MANY_REQUESTS, Code.HA_NOT_AVAILABLE, Code.OK])
async def test_a_retry_that_another_leader_answers(
    service: SingleService, monkeypatch: pytest.MonkeyPatch, told: Code
) -> None:
    Tries(service, monkeypatch, UNKNOWN, NOT_LEADER)
    answer = pb.SendMessageResponse(status=Status(code=told)).SerializeToString()

    async def forward(*_: object) -> list[bytes]:
        return [answer]

    monkeypatch.setattr(service.service.dispatcher, "_forward", forward)
    known = told == Code.OK
    assert await code_of(service) == (told if known else Code.MASTER_PERSISTENCE_TIMEOUT)


@pytest.mark.parametrize("first", [UNKNOWN, None])
@pytest.mark.parametrize("turned", [False, True])
async def test_one_message_of_a_send_may_be_stored_and_the_leader_has_gone(
    service: SingleService,
    monkeypatch: pytest.MonkeyPatch,
    first: Exception | None,
    turned: bool,
) -> None:
    await service.broker.create_topic("orders", queues=1)
    fates = (first, NOT_LEADER)
    Tries(
        *(service, monkeypatch, fates[::-1] if turned else fates, (NOT_LEADER, NOT_LEADER)), count=2
    )
    answer = await service.send(message(message_id="1"), message(message_id="2"))
    assert answer.status.code == Code.MASTER_PERSISTENCE_TIMEOUT


async def test_a_read_that_is_asked_again_has_the_answer_of_the_second_time(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, answers = service.service.dispatcher, [NoAnswerError("it is gone"), None]
    refused = pb.GetOffsetResponse(status=Status(code=Code.FORBIDDEN)).SerializeToString()

    def lost(*_: object, **_kind: object) -> None:
        raise NOT_LEADER

    async def forward(*_: object) -> list[bytes]:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return [refused]

    monkeypatch.setattr(type(service.context.offsets), "committed", lost)
    monkeypatch.setattr(dispatcher, "_forward", forward)
    queue = df.MessageQueue(topic=df.Resource(name="orders"))
    request = pb.GetOffsetRequest(group=df.Resource(name="readers"), message_queue=queue)
    answer = await asyncio.wait_for(service.ask("GetOffset", request, pb.GetOffsetResponse), 60)
    assert answer.status.code == Code.FORBIDDEN
    assert not answers
