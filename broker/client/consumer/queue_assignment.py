"""Shares out queues among the members of a group; each member computes it for itself.

``AllocateMessageQueueAveragely``: everyone sorts the queues and the client ids, so everyone comes
to the same result without talking about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.client.message import MessageQueue


def allocate(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], own_id: str
) -> list[MessageQueue]:
    """The share of ``own_id``; nothing if it is not among ``client_ids``.

    With n queues and m clients the first n mod m of them get one more than the others; shares are
    of neighbouring queues.
    """
    ids = sorted(client_ids)
    if own_id not in ids:
        return []
    own = ids.index(own_id)
    share, longer = divmod(len(queues), len(ids))
    first = own * share + min(own, longer)
    return sorted(queues)[first : first + share + (own < longer)]
