"""The patience of producers and consumers. Defaults are RocketMQ's if it has them."""

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
    """From a call until it fails, all tries together."""

    request_seconds: float = 3.0
    """How long one try waits for its answer (``sendMsgTimeout``)."""

    idempotent: bool = True
    """A message that may be stored in one broker group is not sent to another, which would not know
    it. If False, it may be, as by RocketMQ's producers, and may then be stored in both."""

    doubtful_tries: int = 3
    """All tries, if brokers refuse with a code that says little (1 and
    ``retryTimesWhenSendFailed``)."""

    missing_topic_seconds: float = 3.0
    """How long a topic that no NameServer knows is waited for."""

    default_queues: int = 4
    """The queues of a topic that sending creates (``defaultTopicQueueNums``)."""

    compress_over_bytes: int = 4096
    """Single messages with larger bodies are compressed, if that makes them smaller
    (``compressMsgBodyOverHowmuch``); 0: never."""

    compression_type: CompressionType = CompressionType.ZLIB
    """All clients decompress zlib; LZ4 and Zstandard need RocketMQ's of 5.0 and later
    (``rocketmq.message.compressType``)."""

    send_latency_fault_enable: bool = False
    """Leave brokers that were slow or failed alone for a while."""

    security: ClientSecurity | None = None
    """Who the client is, and whom it believes; None: as the environment says
    (:mod:`broker.security.credentials`)."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a ``compression_type`` that there is not."""
        CompressionType(self.compression_type)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Times are those of the event loop, in seconds."""

    request_seconds: float = 3.0

    suspend_seconds: float = 15.0
    """How long a broker may hold a pull without a message (``brokerSuspendMaxTimeMillis``)."""

    pull_seconds: float = 30.0
    """How long a pull waits for its answer (``consumerTimeoutMillisWhenSuspend``)."""

    pull_messages_max: int = 1024
    """The messages of one pull; the broker has limits of its own."""

    buffered_bytes_max: int = 64 * 1024 * 1024
    """The limit for messages that all queues together have pulled and not yet handed out."""

    heartbeat_seconds: float = 30.0
    rebalance_seconds: float = 20.0

    settle_seconds: float = 2.0
    """After a new leader was found, queues stay as they are for so long. The leader learns of the
    group's members by their heartbeats, and the first to ask would seem to be alone."""

    handover_seconds: float = 1.0
    """The delay before a queue begins that another member may have had. That member learns of the
    change at the same time and must commit its offset."""

    commit_seconds: float = 5.0
    """How often offsets are committed (``persistConsumerOffsetInterval``)."""

    send_back_seconds: float = 15.0
    """How long sending a message back is tried."""

    max_reconsume_times: int = 16
    """The attempts after which a message that is sent back goes to the dead letters."""

    close_seconds: float = 5.0
    """How long closing tries to commit what was acknowledged."""

    security: ClientSecurity | None = None
    """As :attr:`ProducerConfig.security`."""


def security_of(config: ProducerConfig | ConsumerConfig) -> ClientSecurity:
    """Raises :class:`~broker.security.credentials.CredentialsError` if the environment names
    files that cannot be used."""
    return security_from(os.environ) if config.security is None else config.security
