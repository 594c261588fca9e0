"""Clients of a simulated cluster, made of shipped code, and their history."""

from __future__ import annotations
