"""Running a client command: its event loop, signals, log lines, and how its failures are told."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from broker.allocator import keep_freed_memory
from broker.cli.failure import CommandError
from broker.client.errors import ClientError, NameServersUnreachableError
from broker.remoting.errors import CallError

EXIT_TERMINATED = 128 + signal.SIGTERM


def run_session(command: str, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs ``work`` to its end. SIGTERM cancels it as Ctrl-C does, so that it can leave in order.

    Raises :class:`CommandError` where the cluster cannot be reached or refuses.
    """
    logging.basicConfig(
        level=logging.WARNING, format=f"dledger {command}: %(message)s", stream=sys.stderr
    )

    keep_freed_memory()

    async def session() -> int:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(session())
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except NameServersUnreachableError as error:
        raise CommandError(
            f"{error}; start a cluster with `dledger up`, or say where one is with --namesrv"
        ) from error
    except (CallError, ClientError) as error:
        raise CommandError(str(error)) from error
