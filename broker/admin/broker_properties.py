"""The settings of a broker by the names of RocketMQ's configuration (request 26)."""

from __future__ import annotations

from broker.admin.membership import member_addresses
from broker.context import BrokerContext
from broker.remoting.protocol.codes import PROTOCOL_VERSION
from store.message.scheduled_topics import DELAYS_MS


def broker_properties(context: BrokerContext) -> dict[str, str]:
    """The settings that RocketMQ's tools read."""
    config, current = context.config, context.settings
    leads = context.node.leadership.serving
    members = member_addresses(config, context.node.core.configuration)
    settings: dict[str, object] = {
        "brokerName": config.group,
        "brokerClusterName": config.cluster,
        "brokerId": 0 if leads else config.follower_broker_id,
        "brokerRole": "SYNC_MASTER" if leads else "SLAVE",
        "brokerIP1": config.own.address.host,
        "listenPort": config.own.address.port,
        "namesrvAddr": ";".join(config.namesrv),
        "autoCreateTopicEnable": current.auto_create_topics,
        "autoCreateSubscriptionGroup": True,
        "slaveReadEnable": current.follower_reads,
        "logLevel": current.log_level,
        "accessMessageInMemoryMaxRatio": config.follower_reads_percent,
        "enablePropertyFilter": current.property_filter,
        "maxMessageSize": config.max_message_size,
        "flushDiskType": "SYNC_FLUSH" if config.flush == "sync" else "ASYNC_FLUSH",
        "fileReservedTime": current.file_reserved_hours,
        "mappedFileSizeCommitLog": config.segment_size,
        "storePathRootDir": config.data,
        "messageDelayLevel": " ".join(map(_span, DELAYS_MS)),
        "filterServerNums": 0,
        "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
        "traceOn": True,
        "traceTopicEnable": False,
        "useTLS": False,
        "enableDLegerCommitLog": True,
        "dLegerGroup": config.group,
        "dLegerSelfId": config.node,
        "dLegerPeers": ";".join(f"{node}-{at.peer}" for node, at in members.items()),
        "version": PROTOCOL_VERSION,
    }
    quotas = context.throttle.quotas
    settings |= {entity.setting: quota for entity, quota in sorted(quotas.items())}
    return {key: _text(value) for key, value in settings.items()}


def _text(value: object) -> str:
    return str(value).lower() if type(value) is bool else str(value)


def _span(milliseconds: int) -> str:
    """A delay as RocketMQ writes it: ``30s``, ``2m``, ``1h``."""
    seconds = milliseconds // 1000
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
