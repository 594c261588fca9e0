"""A whole cluster that has fewer entries and less housekeeping in a second.

Most of what a run costs is the way of each entry through three brokers. Here the impatient producer
and those who ask for offsets do several things at the same instant, and then pause longer: about as
much is asked for in a second, in fewer entries, which hold more. So a second costs less, and more
seconds with faults are seen in the same time; the other worlds are for what only shows under load.
Damage at rest is looked for less often, where none is done. A world of its own, so that the seeds
of the others go on meaning what they mean.
"""

from __future__ import annotations

from simulator.bursts import BurstsCluster


class CalmCluster(BurstsCluster):
    """See the module. Its clients send, are given, write and read some 22 times a second."""

    client_pauses = (0.2, 0.3, 0.4)
    patient_pauses = 4.0
    register_pauses = 3.0
    queues_per_topic = 2
    scrub_passes = (6.0, 12.0)
