"""What a list tells of broker groups that it could not ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from broker.cluster_admin.broker_names import unregistered


def tell_unregistered(command: str, names: Sequence[str]) -> None:
    """Warns of broker groups without a registered node: what only they have is not in a list."""
    if names:
        print(
            f"dledger {command}: {unregistered(names)}: what only it has is missing here",
            file=sys.stderr,
        )


def left_out(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """What the document of a list says of the broker groups without a registered node: nothing if
    there are none."""
    return {"unregistered_groups": names} if names else {}
