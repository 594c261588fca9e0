"""A sample counts for the folder of the innermost function of this project."""

from __future__ import annotations

import pytest

from tests.bench.step_cost import BESIDES, by_room, call_tree, room_of

LOOP = "main (broker/cli/main.py:9);run (dledger/node/x.py:1);Runner.run (asyncio/runners.py:118)"
CHECKPOINT = "_run (dledger/node/executor.py:106);save (dledger/node/checkpointer.py:7)"


@pytest.mark.parametrize(
    ("stack", "room"),
    [
        (LOOP, None),
        ("_bootstrap (threading.py:1);ThreadExecutor._run (dledger/node/executor.py:106)", None),
        (f"{LOOP};buffer_updated (dledger/wire/websocket_frames.py:9)", "dledger/wire"),
        (
            f"{LOOP};take (/x/broker/ingest/ingest.py:3);packb (msgpack/__init__.py:3)",
            "broker/ingest",
        ),
        (
            f"{CHECKPOINT};pwrite (store/io/os_filesystem.py:9)",
            "checkpoints, durable mark, room ahead",
        ),
        ("_bootstrap (threading.py:1)", BESIDES),
        ("<module> (.venv/bin/dledger:8)", BESIDES),
    ],
)
def test_a_sample_counts_for_a_room(stack: str, room: str | None) -> None:
    assert room_of(stack) == room


def test_shares_are_of_samples_that_do_not_wait() -> None:
    log, ingest = "a (store/log/segment.py:1)", "b (broker/ingest/ingest.py:3)"
    assert by_room([f"{LOOP} 6", f"{log} 3", f"{ingest} 1"]) == {
        "store/log": 75.0,
        "broker/ingest": 25.0,
    }
    assert by_room([]) == {}


def test_functions_stand_below_those_that_call_them() -> None:
    tree = call_tree(
        [
            f"{LOOP};received (a.py:1);decode (b.py:1) 6",
            f"{LOOP};received (a.py:1);decode (b.py:1);crc (b.py:3) 1",
            f"{LOOP};received (a.py:1);answer (c.py:2) 2",
            f"{LOOP} 5",
            "_bootstrap (threading.py:1);ThreadExecutor._run (e.py:5);write (d.py:5) 10",
        ]
    )
    assert list(tree.lines(2)) == [
        (0, 10, "ThreadExecutor._run > write"),
        (0, 9, "Runner.run > received"),
        (1, 7, "decode"),
        (1, 2, "answer"),
    ]
