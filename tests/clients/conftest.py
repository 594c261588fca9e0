"""The fixtures of tests that run a real cluster."""

from __future__ import annotations

from tests.cluster.running_cluster import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
