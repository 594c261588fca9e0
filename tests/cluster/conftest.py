"""The fixtures of tests that run a real cluster."""

from __future__ import annotations

from tests.cluster.running_cluster import cluster, shared_cluster
from tests.cluster.stocked_topics import stocked, topic

__all__ = ["cluster", "shared_cluster", "stocked", "topic"]
