"""Planted bugs D: what clients are told, and what is derived from the log."""

from __future__ import annotations

from dledger.node import Node
from simulator.bugs.plant import Bug, Patch


def open_proposals_forgotten(patch: Patch) -> None:
    """Who waits for an answer of a deposed leader waits for ever."""
    patch.set(Node, "_drop_proposals", lambda node: node._proposals.clear())


BUGS = (Bug("D10x", open_proposals_forgotten, "not within", 100),)
