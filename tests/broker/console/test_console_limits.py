"""What the console keeps and shows is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.cluster_admin.peeking import Window
from broker.command_error import CommandError, UsageError
from broker.console.actions import dead_letters
from broker.console.actions.dead_letters import ResendDeadLetters
from broker.console.pages import charts, messages
from broker.console.visits import jobs, visit
from broker.limits import CONSOLE
from broker.metrics.history import STEP_SECONDS, HistorySample
from broker.security.credentials import ClientSecurity, Credentials
from tests.broker.single_broker import SingleBroker


def limited(patch: pytest.MonkeyPatch, module: ModuleType, **limits: int) -> None:
    patch.setattr(module, "CONSOLE", CONSOLE._replace(**limits))


def letters(*bodies: bytes) -> Any:
    """What gives messages with these bodies, whatever it is asked."""

    async def found(*_arguments: object) -> AsyncIterator[Any]:
        for number, body in enumerate(bodies):
            yield SimpleNamespace(message_id=f"{number}", properties={}, raw_body=body)

    return found


async def test_a_change_is_refused_while_too_many_are_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, jobs, changes_max=2)
    monkeypatch.setattr(jobs, "AT_ONCE_SECONDS", 0)
    begun = jobs.Jobs()
    end = asyncio.Event()

    async def work() -> str:
        await end.wait()
        return "done"

    first, _ = [await begun.begin("t", "me", work()) for _ in range(2)]
    with pytest.raises(CommandError, match="2 changes are in progress; try again later"):
        await begun.begin("t", "me", work())
    end.set()
    await first.task
    third = await begun.begin("t", "me", work())
    assert begun.find(first.number, "me") is None, "the oldest that is done is forgotten"
    assert begun.find(third.number, "me") is third
    assert begun.find(third.number, "another") is None
    await begun.close()


async def test_so_many_accounts_keep_connections_and_all_that_are_in_use(
    monkeypatch: pytest.MonkeyPatch, broker: SingleBroker
) -> None:
    events = []

    class Connections:
        def __init__(self, _loop: object, *, security: ClientSecurity) -> None:
            assert security.credentials is not None
            self.name = security.credentials.access_key
            events.append(f"{self.name} is new")

        async def close(self) -> None:
            events.append(f"{self.name} is closed")

    limited(monkeypatch, visit, visitors_max=2)
    monkeypatch.setattr(visit, "RemotingClient", Connections)
    clients = visit.Clients(broker.broker.context)
    for name in ("one", "two", "one", "three"):
        with clients.admin(ClientSecurity(Credentials(name, "secret"))):
            pass
        await asyncio.sleep(0)
    assert events == ["one is new", "two is new", "three is new", "two is closed"]
    with clients.admin(ClientSecurity(Credentials("one", "secret"))):
        for name in ("four", "five"):  # a change of one goes on meanwhile
            with clients.admin(ClientSecurity(Credentials(name, "secret"))):
                pass
            await asyncio.sleep(0)
    assert events[4:] == ["four is new", "three is closed", "five is new", "four is closed"]
    await clients.close()
    assert events[8:] == ["one is closed", "five is closed"]


async def test_a_page_looks_at_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, messages, page_bytes_max=100)
    found = letters(b"x" * 60, b"x" * 60, b"x")
    monkeypatch.setattr(messages, "Peek", lambda *_: SimpleNamespace(messages=found))
    asked: Any = SimpleNamespace(admin=None)
    assert len(await messages._peeked(asked, "orders", Window(), 3)) == 2
    assert len(await messages._peeked(asked, "orders", Window(), 1)) == 1


@pytest.mark.parametrize("form", ["text", "hex"])
def test_so_much_of_a_body_is_shown(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    limited(monkeypatch, messages, body_bytes_shown_max=10)
    assert messages.body_as(form, b"[1,2,3,4,5]") == messages.body_as(form, b"[1,2,3,4,5")
    assert messages.as_json(b"[1,2,3,45]")
    assert not messages.as_json(b"[1,2,3,4,5]")


async def test_a_question_lists_so_many_dead_letters_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, dead_letters, preview_rows_max=2)
    monkeypatch.setattr(dead_letters, "dead_letters", letters(*[b"x"] * 5))
    asked: Any = SimpleNamespace(admin=None)
    preview = await ResendDeadLetters().preview(asked, {"group": "billing"})
    assert preview.question == "Send 5 dead letters to the group billing alone?"
    assert len(preview.rows) == 2
    assert preview.note.startswith("And 3 more. ")


def test_one_change_sends_so_many_of_the_last_dead_letters() -> None:
    last = CONSOLE.dead_letters_last_max
    resend = ResendDeadLetters()
    assert str(last) in resend.arguments({"group": "billing", "last": str(last)})
    with pytest.raises(UsageError, match=f"it may be 1 to {last}"):
        resend.arguments({"group": "billing", "last": str(last + 1)})


@pytest.mark.parametrize("hours", charts.HOURS)
async def test_a_curve_has_so_many_points_whatever_nodes_tell(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    limited(monkeypatch, charts, chart_points_max=60)
    now = 1_790_000_000_000

    async def of_nodes(*_: object) -> list[dict[str, Any]]:
        samples = [(now - 1000 * k, 1, 1, 1, 1, 1) for k in range(0, 10 * 3600, STEP_SECONDS)]
        return [{"fields": HistorySample._fields, "samples": list(map(list, samples))}]

    async def nodes() -> dict[str, Any]:
        return {"nodes": []}

    asked: Any = SimpleNamespace(
        query={"hours": str(hours)},
        context=SimpleNamespace(wall_clock=lambda: now),
        view=SimpleNamespace(nodes=nodes, of_nodes=of_nodes),
    )
    told = await charts.charts(asked)
    (points,) = {len(curve) for curve in told.values()}
    # Where the hours begin within a step, that one has a point too.
    assert points in {60, 61}
