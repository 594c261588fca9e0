"""A whole cluster whose clients read offsets and topics at any broker: reads by index (thesis 6.4).

A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from simulator.whole import WholeCluster


class FollowersCluster(WholeCluster):
    """See the module."""

    reads_at_followers = True
