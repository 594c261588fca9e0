"""Runs a cluster by a script to its end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from simulator.engine.violation import Violation
from simulator.worlds.cluster import Cluster
from simulator.worlds.logged_errors import logged_errors_reported
from simulator.worlds.outcome import Outcome

Script: TypeAlias = "Callable[[Cluster[Any]], Coroutine[object, object, None]]"


@contextmanager
def without_collector() -> Iterator[None]:
    """Turns off the garbage collector while it is open.

    Its times depend on more than the seed. It also finalises pending tasks of dead processes, which
    may then run code at any time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """At the end, collects the world that was made and played while it is open.

    A world is full of cycles, and takes up to 300 MB. Only new objects are examined, in a twentieth
    of the time. A coroutine that ends then may keep others until the next pass.
    """
    with without_collector():
        gc.freeze()
        try:
            yield
        finally:
            while gc.collect():
                pass
            gc.unfreeze()


@without_collector()
def play(cluster: Cluster[Any], script: Script) -> Outcome:
    """Runs a cluster by a script to its end. Returns the outcome."""
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
    return outcome
