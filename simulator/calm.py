"""A whole cluster that has fewer clients' requests and less housekeeping in a second.

Most of what a run costs is the way of the clients' requests through three brokers. With fewer of
them a second costs less, so that more seconds with faults are seen in the same time; the other
worlds are for what only shows under load. Damage at rest is looked for less often, where none is
done. A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from simulator.whole import WholeCluster


class CalmCluster(WholeCluster):
    """See the module. Its clients send, are given, write and read some 22 times a second."""

    client_pauses = (0.3, 0.45, 0.6)
    scrub_passes = (6.0, 12.0)
