"""Names of topics and groups for shell completion.

The names come from the command's cluster: that of ``--namesrv``, ``--profile`` or the environment.
If it does not answer at once, there are no names and no error, because the user is typing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from broker.topics_and_groups import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from broker.cluster_admin.admin_client import AdminClient

PATIENCE_SECONDS = 1.0
NAMES_MAX = 500


def topics(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Topics that begin with ``begun``. Retry and dead letter topics only if it is not empty."""
    from broker.cluster_admin.topics import topic_names  # noqa: PLC0415 - only for a shell

    names = _ask(context, topic_names)
    if not begun:
        names = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    return _beginning(begun, names)


def groups(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Consumer groups that begin with ``begun``."""
    from broker.cluster_admin.consumer_group_views import group_names  # noqa: PLC0415 - as above

    return _beginning(begun, _ask(context, group_names))


def _ask(context: click.Context, names: Callable[[AdminClient], Awaitable[list[str]]]) -> list[str]:
    from broker.cluster_admin.admin_client import open_admin, run_to_its_end  # noqa: PLC0415 - as above
    from broker.command_error import CommandError  # noqa: PLC0415 - as above
    from broker.security.credentials import CredentialsError, security_from  # noqa: PLC0415 - as above

    async def session() -> list[str]:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            open_admin(context.params["namesrv"], security_from(os.environ)) as admin,
        ):
            return await names(admin)

    logging.getLogger("dledger").addHandler(logging.NullHandler())
    try:
        return run_to_its_end(session())
    except (CommandError, CredentialsError, OSError, TimeoutError):
        return []


def _beginning(begun: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begun)][:NAMES_MAX]
