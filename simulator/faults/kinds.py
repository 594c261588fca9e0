"""Every kind of fault, by its name in the summary of a run.

A new one is registered in the table of its file, a new table here. A seed draws each kind by its
name, so a new one changes only the runs that have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.faults.broker_sequences import BROKER_SEQUENCE_KINDS
from simulator.faults.client_and_clock_faults import BROKER_ONLY_KINDS
from simulator.faults.damage_at_rest import DAMAGE_KINDS
from simulator.faults.injector import Fault
from simulator.faults.membership import MEMBER_KINDS
from simulator.faults.node_faults import ATTACKS, NODE_KINDS
from simulator.faults.raft_sequences import RAFT_SEQUENCE_KINDS, SEQUENCE_KINDS

NODE_FAULTS: Mapping[str, Fault] = {
    **NODE_KINDS,
    **MEMBER_KINDS,
    **SEQUENCE_KINDS,
    **RAFT_SEQUENCE_KINDS,
    **ATTACKS,
}
"""Faults for a group of bare nodes, which has no clients and no clocks."""

BROKER_FAULTS: Mapping[str, Fault] = {
    **NODE_KINDS,
    **BROKER_ONLY_KINDS,
    **DAMAGE_KINDS,
    **MEMBER_KINDS,
    **SEQUENCE_KINDS,
    **BROKER_SEQUENCE_KINDS,
    **ATTACKS,
}
"""Faults for a group of brokers."""

DRAWN_FOR_NODES = tuple(NODE_KINDS)
DRAWN_FOR_BROKERS = (*NODE_KINDS, *BROKER_ONLY_KINDS, *BROKER_SEQUENCE_KINDS)
"""The kinds from which a seed draws by default."""

DEFAULT_KINDS = (*DRAWN_FOR_BROKERS, *MEMBER_KINDS, *SEQUENCE_KINDS)
ALL_KINDS = (*DEFAULT_KINDS, *DAMAGE_KINDS, *RAFT_SEQUENCE_KINDS)
