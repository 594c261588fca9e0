"""Passes the quotas of the replicated state to the flows of a broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from broker.quotas.quota import PREFIX, QuotaError, parse_entity, parse_quota
from broker.quotas.throttle import Throttle

log = logging.getLogger(__name__)


class Limited(Protocol):
    """The part of ingest, delivery and POP that is used here."""

    quotas: Throttle | None


class QuotaSetup:
    """The quotas of one broker. Without quotas the flows have None, and check nothing."""

    def __init__(self, throttle: Throttle, flows: Sequence[Limited]) -> None:
        self._throttle = throttle
        self._flows = flows

    def restored(self) -> None:
        """Starts again for a restored state; its settings follow one by one."""
        self._throttle.clear()
        self._open()

    def leads_no_more(self) -> None:
        """Drops the debts: this node takes no more messages."""
        self._throttle.leads_no_more()

    def setting_changed(self, name: str, value: str) -> None:
        """Takes a changed setting, if it is a quota."""
        if not name.startswith(PREFIX):
            return
        try:
            self._throttle.put(parse_entity(name), parse_quota(value))
        except QuotaError as error:  # written by a later version
            log.warning("an unknown quota is ignored: %s", error)
        self._open()

    def _open(self) -> None:
        for flow in self._flows:
            flow.quotas = self._throttle.active
