"""The reload at SIGHUP: the file is read again, and changeable settings take effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from broker.config.setting import Setting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound="DataclassInstance")


def take_changes(settings: Iterable[Setting], before: Config, after: Config) -> Config:
    """``before`` with the changes of ``after`` that need no restart. Logs the changes, and those
    that need a restart."""
    changeable = {one.key for one in settings if one.reload}
    changed = [
        each.name
        for each in fields(before)
        if getattr(before, each.name) != getattr(after, each.name)
    ]
    for key in changed:
        told = {"key": key, "before": getattr(before, key), "value": getattr(after, key)}
        if key in changeable:
            log.info("%(key)s is %(value)s now, it was %(before)s", told)
        else:
            log.warning("%(key)s was changed in the file and needs a restart", {"key": key})
    return replace(before, **{key: getattr(after, key) for key in changed if key in changeable})
