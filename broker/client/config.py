"""The settings of producers and consumers. Defaults are RocketMQ's where it has the setting."""

from __future__ import annotations

import os
from dataclasses import dataclass

from broker.security.credentials import ClientSecurity, security_from
from store.message.compressed_body import CompressionType


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Times are those of the event loop, in seconds."""

    group: str = "dledger-producer"

    deadline_seconds: float = 30.0
    """The time of a call with all its tries."""

    request_seconds: float = 3.0
    """How long one try waits for an answer (``sendMsgTimeout``)."""

    idempotent: bool = True
    """If True, a message that may be stored in one broker group is not sent to another, which could
    not recognise the retry. If False it may be, as with RocketMQ's producers, and may then be
    stored in both."""

    doubtful_tries: int = 3
    """The tries if brokers refuse with a code of no clear meaning (1 and
    ``retryTimesWhenSendFailed``)."""

    missing_topic_seconds: float = 3.0
    """How long a call waits for a topic that no NameServer knows."""

    default_queues: int = 4
    """The number of queues of a topic that a message creates (``defaultTopicQueueNums``)."""

    compress_over_bytes: int = 4096
    """The body size above which single messages are compressed, if that makes them smaller
    (``compressMsgBodyOverHowmuch``); 0: never."""

    compression_type: CompressionType = CompressionType.ZLIB
    """All clients decompress zlib; LZ4 and Zstandard need RocketMQ's clients of 5.0 and later
    (``rocketmq.message.compressType``)."""

    send_latency_fault_enable: bool = False
    """Avoids slow or failed brokers for a while."""

    security: ClientSecurity | None = None
    """The account of the client, and the authority that it trusts; None: from the environment
    (:mod:`broker.security.credentials`)."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for an unknown ``compression_type``."""
        CompressionType(self.compression_type)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Times are those of the event loop, in seconds."""

    request_seconds: float = 3.0

    suspend_seconds: float = 15.0
    """How long a broker may hold a pull without a message (``brokerSuspendMaxTimeMillis``)."""

    pull_seconds: float = 30.0
    """How long a pull waits for an answer (``consumerTimeoutMillisWhenSuspend``)."""

    pull_messages_max: int = 1024
    """The most messages of one pull. The broker has limits of its own."""

    buffered_bytes_max: int = 64 * 1024 * 1024
    """No queue is pulled while the program has not taken so many bytes of pulled messages, of all
    queues together. Pulls that are under way then may add one answer for each queue."""

    heartbeat_seconds: float = 30.0
    rebalance_seconds: float = 20.0

    settle_seconds: float = 2.0
    """How long the assignment of queues stays after a new leader was found. The leader learns of
    the members by their heartbeats, so at first it would know only one member."""

    handover_seconds: float = 1.0
    """The delay before a member starts a queue that another member may have had. That member learns
    of the change at the same time, and must commit its offset first."""

    commit_seconds: float = 5.0
    """How often offsets are committed (``persistConsumerOffsetInterval``)."""

    send_back_seconds: float = 15.0
    """How long a send-back is tried."""

    max_reconsume_times: int | None = None
    """The retries after which a message becomes a dead letter; None: as many as the settings of
    the group say, usually 16."""

    close_seconds: float = 5.0
    """How long :meth:`~broker.client.consumer.consumer.Consumer.close` tries to commit acknowledged
    messages."""

    security: ClientSecurity | None = None
    """As :attr:`ProducerConfig.security`."""


def security_of(config: ProducerConfig | ConsumerConfig) -> ClientSecurity:
    """The client's credentials. Raises :class:`~broker.security.credentials.CredentialsError` if
    files named in the environment cannot be used."""
    return security_from(os.environ) if config.security is None else config.security
