"""RocketMQ's names of properties that have fields in the gRPC protocol, or that clients may not
set. Source: ``MessageConst`` of RocketMQ 5."""

from __future__ import annotations

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
MESSAGE_GROUP = "__SHARDINGKEY"
TRACE_CONTEXT = "TRACE_CONTEXT"
DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
HALF = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
DEAD_LETTER_TOPIC = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
RETRY_TOPIC = "RETRY_TOPIC"

RESERVED = frozenset(
    (
        "1ST_POP_TIME",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MSG_REGION",
        "MSG_TYPE",
        "MSG_REPLY_TO_CLIENT",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PROPERTY_FORWARD_QUEUE_ID",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REDIRECT",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "ARRIVE_TIME",
        "__SHARDINGKEY",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_CONTEXT",
        "TRACE_ON",
        "TRAN_MSG",
        "TRANSFER_FLAG",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "__transactionId__",
        "UNIQ_KEY",
        "WAIT",
    )
)
"""Properties that a client neither sets nor gets as user properties."""
