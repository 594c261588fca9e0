"""The numbers of RocketMQ's remoting protocol: request and response codes, flags, languages.

The names are those of ``RequestCode``, ``ResponseCode``, ``LanguageCode`` in RocketMQ 4.9 and 5.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

FLAG_RESPONSE = 1
"""Bit 0 of a frame's flag: the frame answers a request."""

FLAG_ONE_WAY = 2
"""Bit 1 of a frame's flag: the sender wants no answer, and none may be sent."""

OUTCOME = "outcome"
"""A field of refusals: the outcome of the request, which RocketMQ's codes leave open."""

OUTCOME_UNKNOWN = "unknown"
"""The request may still be carried out."""

OUTCOME_NOT_LEADER = "not-leader"
"""Nothing was done. Only the leader can serve the request, and this broker does not lead."""

LEADER = "leader"
"""A field of answers that a follower got from the leader, and of its own answers to pulls: the
leader's address, ``host:port``. A client that took the follower for the leader has an old route."""

MISSING = "missing"
"""A field of the answer to request 33: ``true`` if no message begins at the position; absent if the
message cannot be read now. RocketMQ's code is the same for both."""

PROTOCOL_VERSION = 409
"""The version that clients see: the ordinal of 4.9.8. They then expect its behaviour."""

VERSION_STANDARD_JSON = 401
"""The first version (4.9.4) whose clients read quoted integer keys, as JSON demands."""


class RequestCode(IntEnum):
    """The request codes that programs of this project send or serve, of both directions."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    GET_GROUP_MEMBERS = 9001
    CHANGE_GROUP_MEMBERS = 9002
    TRANSFER_LEADERSHIP = 9003
    GET_CONSUMER_GROUPS = 9004
    FORWARD = 9005
    FORWARD_GRPC = 9006
    GRPC_COMMAND = 9007
    PASS_TO_CLIENT = 9008
    HOLD_CLIENT = 9009
    GET_WAITING_OF_TOPIC = 9010
    CANCEL_GRPC = 9011
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(IntEnum):
    """The outcome of a request. 0, 10, 11 and 12 all mean that the message of a producer is
    stored."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


UNAVAILABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)
"""The leader may serve the request, or this node a moment later."""

RESPONSE_WORDS: Mapping[int, str] = {
    ResponseCode.SUCCESS: "done",
    ResponseCode.SYSTEM_ERROR: "request failed",
    ResponseCode.SYSTEM_BUSY: "too busy",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "request unknown to that server or its version",
    ResponseCode.TRANSACTION_FAILED: "transaction failed",
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but not on disk in time",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, but on one node only",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, but not on another node in time",
    ResponseCode.MESSAGE_ILLEGAL: "illegal message",
    ResponseCode.SERVICE_NOT_AVAILABLE: "not available there now",
    ResponseCode.VERSION_NOT_SUPPORTED: "version not supported",
    ResponseCode.NO_PERMISSION: "no permission",
    ResponseCode.TOPIC_NOT_EXIST: "no such topic",
    ResponseCode.TOPIC_EXIST_ALREADY: "topic exists already",
    ResponseCode.PULL_NOT_FOUND: "no message there yet",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "no matching message so far",
    ResponseCode.PULL_OFFSET_MOVED: "no message at that offset any more",
    ResponseCode.QUERY_NOT_FOUND: "not found",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "bad subscription expression",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "no such subscription",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "subscription out of date",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "no such group",
    ResponseCode.FILTER_DATA_NOT_EXIST: "no such filter",
    ResponseCode.FILTER_DATA_NOT_LATEST: "filter out of date",
    ResponseCode.INVALID_PARAMETER: "invalid parameter",
    ResponseCode.TRANSACTION_SHOULD_COMMIT: "transaction is to be committed",
    ResponseCode.TRANSACTION_SHOULD_ROLLBACK: "transaction is to be rolled back",
    ResponseCode.TRANSACTION_STATE_UNKNOW: "state of the transaction unknown",
    ResponseCode.TRANSACTION_STATE_GROUP_WRONG: "transaction of another group",
    ResponseCode.NO_BUYER_ID: "no buyer id",
    ResponseCode.NOT_IN_CURRENT_UNIT: "belongs to another unit",
    ResponseCode.CONSUMER_NOT_ONLINE: "no consumer connected",
    ResponseCode.CONSUME_MSG_TIMEOUT: "consumer did not answer in time",
    ResponseCode.NO_MESSAGE: "no message",
    ResponseCode.POLLING_FULL: "too many requests wait",
    ResponseCode.POLLING_TIMEOUT: "waited in vain",
    ResponseCode.BROKER_NOT_EXIST: "no such broker",
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: "broker not ready yet",
    ResponseCode.BROADCAST_CONSUMPTION: "not known of a broadcasting group",
    ResponseCode.FLOW_CONTROL: "too many requests",
    ResponseCode.NOT_LEADER_FOR_QUEUE: "another broker leads",
    ResponseCode.ILLEGAL_OPERATION: "illegal operation",
    ResponseCode.GO_AWAY: "server is leaving",
}
"""A text for people for each code."""


def refusal_words(code: int, remark: str | None) -> str:
    """A server's remark with the meaning of its code: ``body CRC (request failed)``. Remarks of
    SERVICE_NOT_AVAILABLE say themselves what is not available."""
    words = RESPONSE_WORDS.get(code, f"a reason that this version does not know, number {code}")
    if not remark:
        return words
    return remark if code == ResponseCode.SERVICE_NOT_AVAILABLE else f"{remark} ({words})"


class LanguageCode(IntEnum):
    """The language of the sender; a binary header carries the number, a JSON header the name."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


LANGUAGE_BY_NAME = {language.name: language for language in LanguageCode}
LANGUAGE_BY_NUMBER = {int(language): language for language in LanguageCode}


class Serialization(IntEnum):
    """How a frame's header is written; an answer uses that of its request."""

    JSON = 0
    ROCKETMQ = 1
