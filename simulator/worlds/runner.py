"""Runs a cluster through a script to its end, and returns the outcome."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from simulator.engine.violation import Violation
from simulator.worlds.cluster import Cluster
from simulator.worlds.logged_errors import logged_errors_reported
from simulator.worlds.outcome import Outcome

Script: TypeAlias = "Callable[[Cluster[Any]], Coroutine[object, object, None]]"


def play(cluster: Cluster[Any], script: Script) -> Outcome:
    """Runs a cluster through a script to its end.

    It runs without the garbage collector. When that runs depends on more than the seed, and it
    would finalise pending tasks of dead processes, which may speak up at any time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _play(cluster, script)
    finally:
        if collecting:
            gc.enable()


def _play(cluster: Cluster[Any], script: Script) -> Outcome:
    violation: str | None = None
    picture = ""
    try:
        with logged_errors_reported(cluster.fail):
            cluster.loop.run_until_complete(script(cluster))
    except Violation as broken:
        violation, picture = str(broken), broken.page
    except Exception as error:  # noqa: BLE001 - any failure of shipped code is a finding
        violation = f"{type(error).__name__}: {error}"
    if violation is not None:
        cluster.trace.note("!!!", violation)
    outcome = cluster.outcome(violation, picture)
    cluster.switch_off()
    _close_unstarted(cluster)
    return outcome


def _close_unstarted(cluster: Cluster[Any]) -> None:
    """Coroutines of tasks whose first step the end of the run forestalled: Python warns of each."""
    for task in asyncio.all_tasks(cluster.loop):
        coroutine = task.get_coro()
        if (
            inspect.iscoroutine(coroutine)
            and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        ):
            coroutine.close()
