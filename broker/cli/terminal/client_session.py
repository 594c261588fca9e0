"""Runs a client command: event loop, signals, log lines, and error texts."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from broker.client.errors import ClientError, NameServersUnreachableError
from broker.command_error import WHERE_A_NAMESERVER_IS, CommandError, UsageError
from broker.exit_codes import EXIT_TERMINATED
from broker.remoting.protocol.errors import CallError
from broker.security.credentials import CredentialsError
from broker.system.malloc_tuning import keep_freed_memory


def run_session(command: str, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs ``work`` to its end. SIGTERM cancels it as Ctrl-C does, so that it can clean up.

    Raises :class:`CommandError` if the cluster cannot be reached or refuses.
    """
    told = logging.StreamHandler(sys.stderr)
    # The call that waited for a connection reports the error.
    told.addFilter(lambda record: record.name != "dledger.remoting")
    logging.basicConfig(
        level=logging.WARNING, format=f"dledger {command}: %(message)s", handlers=[told]
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
        raise CommandError(f"{error}; {WHERE_A_NAMESERVER_IS}") from error
    except CredentialsError as error:
        raise UsageError(str(error)) from error
    except (CallError, ClientError) as error:
        raise CommandError(str(error)) from error
