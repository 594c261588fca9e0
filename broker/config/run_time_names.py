"""RocketMQ's names of settings: running brokers answer and take changes by them (requests 25 and
26). ``node.toml`` and the pages have names of their own."""

from __future__ import annotations

from typing import Final

RUN_TIME_NAMES: Final = {
    "group": "brokerName",
    "node": "dLegerSelfId",
    "data": "storePathRootDir",
    "namesrv": "namesrvAddr",
    "cluster": "brokerClusterName",
    "flush": "flushDiskType",
    "segment_size": "mappedFileSizeCommitLog",
    "max_message_size": "maxMessageSize",
    "auto_create_topics": "autoCreateTopicEnable",
    "property_filter": "enablePropertyFilter",
    "follower_reads": "slaveReadEnable",
    "follower_reads_percent": "accessMessageInMemoryMaxRatio",
    "file_reserved_hours": "fileReservedTime",
    "log_level": "logLevel",
}
"""By the keys of ``node.toml``."""


def run_time_name(key: str) -> str:
    """RocketMQ's name for a key of ``node.toml``; any other text as it is."""
    return RUN_TIME_NAMES.get(key, key)
