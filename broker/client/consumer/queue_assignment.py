"""Assigns queues to the members of a group; each member computes its own share.

``AllocateMessageQueueAveragely``: every member sorts the queues and the client ids, so all members
get the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.client.message import MessageQueue


def allocate(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], own_id: str
) -> list[MessageQueue]:
    """The share of ``own_id``; empty if it is not in ``client_ids``.

    With n queues and m clients, the first n mod m clients get one queue more than the others. The
    queues of a share are neighbours.
    """
    ids = sorted(client_ids)
    if own_id not in ids:
        return []
    own = ids.index(own_id)
    share, longer = divmod(len(queues), len(ids))
    first = own * share + min(own, longer)
    return sorted(queues)[first : first + share + (own < longer)]
