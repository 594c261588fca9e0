"""The client library: asyncio producers and consumers for RocketMQ's protocol."""

from __future__ import annotations

from broker.client.config import ConsumerConfig, ProducerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.message_selector import Sql
from broker.client.errors import (
    AccessDeniedError,
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
from broker.client.producer.pipeline import Pipeline
from broker.client.producer.producer import Producer
from broker.client.producer.request_reply import Reply
from broker.client.producer.transaction_producer import Outcome, Transaction, TransactionProducer
from broker.client.received_message import PulledBatch, ReceivedMessage
from broker.security.credentials import ClientSecurity, Credentials, CredentialsError

__all__ = [
    "AccessDeniedError",
    "ClientError",
    "ClientSecurity",
    "ClosedError",
    "Consumer",
    "ConsumerConfig",
    "Credentials",
    "CredentialsError",
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
