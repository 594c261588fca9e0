"""Settings that an operator changes at run time (request 25).

Each of RocketMQ's brokers has its own settings. Here changed settings are part of the replicated
state. So they are the same on every member, survive restarts and changes of the leader, and
override ``node.toml``. Other settings are read from that file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from broker.config.node_config import HOURS_MAX, NodeConfig
from broker.config.run_time_names import RUN_TIME_NAMES
from broker.config.setting_checks import nearest, one_line
from broker.quotas.quota import PREFIX, QuotaError, parse_entity, parse_quota
from broker.state.broker_state import BrokerState
from broker.system.log_lines import LEVELS
from store.log.retention_policy import HOUR_MS
from store.quoting import quoted

AUTO_CREATE_TOPICS = RUN_TIME_NAMES["auto_create_topics"]
PROPERTY_FILTER = RUN_TIME_NAMES["property_filter"]
FOLLOWER_READS = RUN_TIME_NAMES["follower_reads"]
FILE_RESERVED_HOURS = RUN_TIME_NAMES["file_reserved_hours"]
LOG_LEVEL = RUN_TIME_NAMES["log_level"]

SWITCHES = frozenset((AUTO_CREATE_TOPICS, PROPERTY_FILTER, FOLLOWER_READS))
CHANGEABLE = (AUTO_CREATE_TOPICS, PROPERTY_FILTER, FILE_RESERVED_HOURS, FOLLOWER_READS, LOG_LEVEL)


class SettingError(ValueError):
    """An invalid change of settings; the text names it and the reason."""


class Applied(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    @property
    def state(self) -> BrokerState: ...


class DynamicSettings:
    """The present values of these settings.

    ``config`` is ``node.toml`` as last read. At SIGHUP it is read again
    (:mod:`broker.config.reload`).
    """

    def __init__(self, config: NodeConfig, applied: Applied) -> None:
        self.config = config
        self._usual_hours = config.file_reserved_hours
        self._applied = applied

    @property
    def auto_create_topics(self) -> bool:
        return self._switch(AUTO_CREATE_TOPICS, self.config.auto_create_topics)

    @property
    def property_filter(self) -> bool:
        return self._switch(PROPERTY_FILTER, self.config.property_filter)

    @property
    def follower_reads(self) -> bool:
        return self._switch(FOLLOWER_READS, self.config.follower_reads)

    @property
    def file_reserved_hours(self) -> int:
        """0: messages are kept for ever."""
        changed = self._applied.state.settings.get(FILE_RESERVED_HOURS)
        return self.config.file_reserved_hours if changed is None else int(changed)

    @property
    def log_level(self) -> str:
        """One of ``LEVELS``. After a SIGHUP the node itself may have another one."""
        return self._applied.state.settings.get(LOG_LEVEL, self.config.log_level)

    def reserved_ms(self, usual: int | None) -> int | None:
        """The age in ms up to which messages are kept; ``usual`` if the setting was not changed
        since the start."""
        commanded = FILE_RESERVED_HOURS in self._applied.state.settings
        if not commanded and self.config.file_reserved_hours == self._usual_hours:
            return usual
        return self.file_reserved_hours * HOUR_MS or None

    def _switch(self, name: str, usual: bool) -> bool:
        changed = self._applied.state.settings.get(name)
        return usual if changed is None else changed == "true"


def changed_settings(properties: bytes) -> Mapping[str, str]:
    """The changes in the Java properties text of a request, checked. Raises
    :class:`SettingError`."""
    try:
        lines = properties.decode().splitlines()
    except UnicodeDecodeError:
        raise SettingError("the body is not UTF-8") from None
    changed: dict[str, str] = {}
    for line in map(str.strip, lines):
        if line and not line.startswith(("#", "!")):
            name, equals, value = line.partition("=")
            if not equals:
                raise SettingError(f"{quoted(line)} is not name=value")
            changed[name.strip()] = _checked(name.strip(), value.strip())
    if not changed:
        raise SettingError("the body changes nothing; it needs lines name=value")
    return changed


def _checked(name: str, value: str) -> str:
    if name.startswith(PREFIX):
        try:
            parse_entity(name)
            return str(parse_quota(value))
        except QuotaError as error:
            raise SettingError(str(error)) from error
    if name not in CHANGEABLE:
        # The search takes quadratic time, and the name may be long.
        near = nearest(name, CHANGEABLE) if name.isidentifier() and one_line(name) == name else ""
        hint = f", did you mean {near}?" if near else ""
        raise SettingError(
            f"{one_line(name)} cannot be changed while the broker runs{hint}; these can: "
            f"{', '.join(CHANGEABLE)}, and quotas, as {PREFIX}TYPE.NAME; what else there is stands "
            "in node.toml of every node"
        )
    if name in SWITCHES:
        if value.lower() not in {"true", "false"}:
            raise SettingError(f"{name} is true or false, not {quoted(value)}")
        return value.lower()
    if name == LOG_LEVEL:
        if value.lower() not in LEVELS:
            raise SettingError(f"{name} is {' or '.join(LEVELS)}, not {quoted(value)}")
        return value.lower()
    if not re.fullmatch("[0-9]{1,9}", value) or int(value) > HOURS_MAX:
        raise SettingError(
            f"{name} is a number of hours from 0 to {HOURS_MAX}, not {quoted(value)}"
        )
    return str(int(value))
