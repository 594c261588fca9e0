"""Brings the quotas that the state has to the doors of a broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from broker.quotas.quota import PREFIX, QuotaError, parse_entity, parse_quota
from broker.quotas.throttle import Throttle

log = logging.getLogger(__name__)


class Door(Protocol):
    """The used part of ingest, delivery and POP."""

    quotas: Throttle | None


class QuotaDoors:
    """Of one broker. A door that has no quotas looks for none."""

    def __init__(self, throttle: Throttle, doors: Sequence[Door]) -> None:
        self._throttle = throttle
        self._doors = doors

    def restored(self) -> None:
        """The state is another one; its settings are told one by one."""
        self._throttle.clear()
        self._open()

    def leads_no_more(self) -> None:
        """Another node takes messages in."""
        self._throttle.leads_no_more()

    def setting_changed(self, name: str, value: str) -> None:
        """A setting is another one, a quota or not."""
        if not name.startswith(PREFIX):
            return
        try:
            self._throttle.put(parse_entity(name), parse_quota(value))
        except QuotaError as error:  # a later version wrote it
            log.warning("a quota is not understood here and does not count: %s", error)
        self._open()

    def _open(self) -> None:
        for door in self._doors:
            door.quotas = self._throttle.active
