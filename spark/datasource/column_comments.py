"""The meaning of each column. Spark shows it in ``DESCRIBE`` and keeps it in Parquet.

No comment may have an apostrophe, because the DDL has comments without escapes.
"""

from __future__ import annotations

from spark.datasource.options import View

_COMMENTS = {
    "replica": "the replica that has it, as broker group/node",
    "index": "number of the log entry",
    "term": "term of the entry",
    "kind": "data, no_op or configuration",
    "position": "byte of the log where it begins",
    "size": "bytes, with the header",
    "chain_crc": "CRC32C of all headers up to this one, unsigned",
    "body_crc": "stated CRC32C of the body, unsigned",
    "body_crc_ok": "whether the body has the stated CRC",
    "path": "the file that holds it",
    "body": "the bytes, null where there are none",
    "topic": "name of the topic",
    "queue_id": "number of the queue in its topic",
    "queue_offset": "number of the message in its queue",
    "msg_id": "id of the message by its place: host and position in hexadecimal digits",
    "unique_key": "id that the producer gave, null where it gave none",
    "tags": "tag, null where there is none",
    "keys": "keys with blanks between, null where there are none",
    "flag": "number that the producer set",
    "sys_flag": "flags of the protocol, a sum of bits",
    "born_timestamp": "when the producer made it, by its clock",
    "born_host": "address:port of the producer",
    "store_timestamp": "when the leader stored it, by its clock",
    "store_host": "address:port of the leader that stored it",
    "reconsume_times": "how often a consumer sent it back",
    "prepared_position": "position of the half message of a transaction, else 0",
    "body_size": "bytes of the body",
    "properties": "all properties by name",
    "tags_code": "hash of the tag, or when to deliver in ms for a message that waits",
    "key_hash": "hash of topic and key, unsigned",
    "read_queues": "queues that consumers read",
    "write_queues": "queues that producers write",
    "perm": "sum of 4 to read, 2 to write, 1 to be a template",
    "ordered": "whether the topic is marked as ordered",
    "consumer_group": "name of the consumer group",
    "consume_enable": "whether the group may consume",
    "consume_from_min_enable": "whether it may begin at the first message there is",
    "consume_broadcast_enable": "whether it may consume by broadcasting",
    "retry_queues": "queues of its retry topic",
    "retry_max_times": "how often a message is retried before it is a dead letter",
    "broker_id": "the broker that it should read from, 0 for the leader",
    "which_broker_when_slow": "the broker that it is sent to when it is far behind",
    "notify_ids_changed": "whether its members are notified when members change",
    "committed_offset": "number of the message that the group consumes next",
    "first_offset": "number of the first message in the queue, null for a queue without messages",
    "end_offset": "number behind the last message in the queue, null as first_offset",
    "half_offset": "number of the half message in its queue",
    "producer_group": "the producer group that must end the transaction",
    "immunity_ms": "how long its producer is not asked, null as the settings of the broker say",
    "checks": "how often its producer was asked",
    "checked_timestamp": "when it was last asked, null where it never was",
}
_STATE_INDEX = "the log entry that the state is as of"
_OF_A_VIEW = {
    (View.MESSAGES, "index"): "number of the log entry that holds the message",
    (View.MESSAGES, "size"): "bytes of the record",
    (View.MESSAGES, "body_crc"): "CRC-32 of the body, 31 bits as RocketMQ keeps it",
    (View.MESSAGES, "position"): "byte of the log where the record begins",
    (View.CONSUMEQUEUE, "position"): "byte of the log where the record begins",
    (View.CONSUMEQUEUE, "size"): "bytes of the record",
    (View.KEYINDEX, "position"): "byte of the log where the record with the key begins",
    (View.KEYINDEX, "store_timestamp"): "when the message was stored, in whole seconds",
    (View.TRANSACTIONS, "position"): "byte of the log where the half message begins",
    (View.TRANSACTIONS, "store_timestamp"): "when the half message was stored",
    **{
        (view, "index"): _STATE_INDEX
        for view in (View.TOPICS, View.GROUPS, View.OFFSETS, View.TRANSACTIONS)
    },
}


def comment_of(view: View, column: str) -> str:
    """The comment of a column. Raises ``KeyError`` for a column of no view."""
    return _OF_A_VIEW.get((view, column)) or _COMMENTS[column]
