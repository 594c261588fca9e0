"""The client library: asyncio producers and consumers for RocketMQ's protocol."""

from __future__ import annotations

from broker.client.asking import Reply
from broker.client.config import ConsumerConfig, ProducerConfig
from broker.client.consumer import Consumer
from broker.client.errors import (
    ClientError,
    ClosedError,
    DeadlineError,
    IllegalMessageError,
    NoReplyError,
    RefusedError,
    TopicNotFoundError,
    TransactionEndedError,
)
from broker.client.message import Message, MessageQueue, SendResult, SendStatus
from broker.client.pipeline import Pipeline
from broker.client.producer import Producer
from broker.client.pulled import PulledBatch, ReceivedMessage
from broker.client.selector import Sql
from broker.client.transactions import Outcome, Transaction, TransactionProducer

__all__ = [
    "ClientError",
    "ClosedError",
    "Consumer",
    "ConsumerConfig",
    "DeadlineError",
    "IllegalMessageError",
    "Message",
    "MessageQueue",
    "NoReplyError",
    "Outcome",
    "Pipeline",
    "Producer",
    "ProducerConfig",
    "PulledBatch",
    "ReceivedMessage",
    "RefusedError",
    "Reply",
    "SendResult",
    "SendStatus",
    "Sql",
    "TopicNotFoundError",
    "Transaction",
    "TransactionEndedError",
    "TransactionProducer",
]
