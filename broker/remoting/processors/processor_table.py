"""The handler of each request code, and the permissions that it needs. An unknown code is answered
with 3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.context import BrokerContext
from broker.errors import WrongStateError
from broker.maintenance.retention import Retention
from broker.remoting.access_guard import Classifier
from broker.remoting.connection import Connection, Handler
from broker.remoting.processors import request_access as needs
from broker.remoting.processors.access_config import AccessConfigProcessor
from broker.remoting.processors.broker_info_and_config import BrokerInfoProcessor
from broker.remoting.processors.clean_expired import CleaningProcessor
from broker.remoting.processors.client_manage import ClientManageProcessor
from broker.remoting.processors.consumer_groups import GroupProcessor
from broker.remoting.processors.consumer_offsets import OffsetProcessor
from broker.remoting.processors.consumer_send_back import SendBackProcessor
from broker.remoting.processors.end_transaction import EndTransactionProcessor
from broker.remoting.processors.linearizable_read import linearizable
from broker.remoting.processors.lock_queues import LockProcessor
from broker.remoting.processors.membership import MemberProcessor
from broker.remoting.processors.pop_message import PopProcessor, as_task
from broker.remoting.processors.pull_message import PullMessageProcessor
from broker.remoting.processors.query_consume_queue import QueryConsumeQueueProcessor
from broker.remoting.processors.query_message import QueryMessageProcessor
from broker.remoting.processors.recall_message import RecallMessageProcessor
from broker.remoting.processors.relay_to_consumer import RelayProcessor
from broker.remoting.processors.reply_message import ReplyMessageProcessor
from broker.remoting.processors.reset_offset import ResetProcessor
from broker.remoting.processors.send_message import SendMessageProcessor
from broker.remoting.processors.topic_and_group_admin import TopicProcessor
from broker.remoting.processors.view_broker_stats import ViewBrokerStatsProcessor
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame


def broker_handlers(
    context: BrokerContext, retention: Retention
) -> tuple[dict[int, Handler], Mapping[int, Classifier]]:
    """The handlers of one broker, and the permissions that its requests need, both by request
    code."""
    send = SendMessageProcessor(context)
    pull = PullMessageProcessor(context)
    pop = PopProcessor(context)
    offsets = OffsetProcessor(context)
    clients = ClientManageProcessor(context)
    topics = TopicProcessor(context)
    messages = QueryMessageProcessor(context)
    admin = BrokerInfoProcessor(context)
    members = MemberProcessor(context)
    locks = LockProcessor(context)
    transactions = EndTransactionProcessor(context)
    resets = ResetProcessor(context)
    replies = ReplyMessageProcessor(context)
    relay = RelayProcessor(context)
    consumption = QueryConsumeQueueProcessor(context)
    broker_stats = ViewBrokerStatsProcessor(context)
    groups = GroupProcessor(context)
    accounts = AccessConfigProcessor(context)
    clean = CleaningProcessor(context, retention).clean
    read = partial(linearizable, context)
    served: Mapping[int, tuple[Handler, Classifier]] = {
        RequestCode.SEND_MESSAGE: (send.send, needs.send),
        RequestCode.SEND_MESSAGE_V2: (send.send_v2, needs.send_short),
        RequestCode.SEND_BATCH_MESSAGE: (send.send_batch, needs.send_short),
        RequestCode.CONSUMER_SEND_MSG_BACK: (SendBackProcessor(context).send_back, needs.send_back),
        RequestCode.PULL_MESSAGE: (pull.pull, needs.pull_or_browse),
        RequestCode.LITE_PULL_MESSAGE: (pull.pull, needs.pull_or_browse),
        RequestCode.POP_MESSAGE: (as_task(pop.receive), needs.pull),
        RequestCode.ACK_MESSAGE: (as_task(pop.ack), needs.pull),
        RequestCode.BATCH_ACK_MESSAGE: (as_task(pop.ack_batch), needs.ack_batch),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (as_task(pop.change), needs.pull),
        RequestCode.NOTIFICATION: (as_task(pop.notify), needs.pull),
        RequestCode.QUERY_CONSUMER_OFFSET: (offsets.query_consumer_offset, needs.pull),
        RequestCode.UPDATE_CONSUMER_OFFSET: (offsets.update_consumer_offset, needs.pull),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (read(offsets.search_offset), needs.describe),
        RequestCode.GET_MAX_OFFSET: (read(offsets.max_offset), needs.describe),
        RequestCode.GET_MIN_OFFSET: (read(offsets.min_offset), needs.describe),
        RequestCode.GET_EARLIEST_MSG_STORETIME: (read(offsets.earliest_store_time), needs.describe),
        RequestCode.HEART_BEAT: (clients.heartbeat, needs.heartbeat),
        RequestCode.UNREGISTER_CLIENT: (clients.unregister, needs.unregister),
        RequestCode.CHECK_CLIENT_CONFIG: (clients.check_client_config, needs.describe),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: (clients.consumer_list, needs.group),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: (clients.consumer_connections, needs.describe),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: (clients.producer_connections, needs.describe),
        RequestCode.GET_ALL_PRODUCER_INFO: (clients.all_producers, needs.describe),
        RequestCode.END_TRANSACTION: (transactions.end, needs.describe),
        RequestCode.RECALL_MESSAGE: (RecallMessageProcessor(context).recall, needs.send),
        RequestCode.LOCK_BATCH_MQ: (locks.lock, needs.locks),
        RequestCode.QUERY_CONSUME_TIME_SPAN: (read(groups.time_spans), needs.describe),
        RequestCode.GET_BROKER_CONSUME_STATS: (read(groups.all_consume_stats), needs.describe),
        RequestCode.QUERY_CONSUME_QUEUE: (read(consumption.queue_rows), needs.consume_topic),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: (read(groups.topics_of_group), needs.describe),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (groups.subscription_of_group, needs.describe),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (relay.consumer_status, needs.describe),
        RequestCode.GET_CONSUMER_RUNNING_INFO: (relay.running_info, needs.group),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: (relay.consume_directly, needs.consume_directly),
        RequestCode.SEND_REPLY_MESSAGE: (replies.reply, needs.describe),
        RequestCode.SEND_REPLY_MESSAGE_V2: (replies.reply_v2, needs.describe),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (resets.reset, needs.administer),
        RequestCode.UNLOCK_BATCH_MQ: (locks.unlock, needs.locks),
        RequestCode.UPDATE_AND_CREATE_TOPIC: (topics.create_topic, needs.administer),
        RequestCode.DELETE_TOPIC_IN_BROKER: (topics.delete_topic, needs.administer),
        RequestCode.GET_ALL_TOPIC_CONFIG: (read(topics.all_topics), needs.describe),
        RequestCode.GET_TOPIC_CONFIG: (read(topics.topic_config), needs.describe),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (topics.system_topics, needs.describe),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (topics.create_group, needs.administer),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: (topics.delete_group, needs.administer),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (read(topics.all_groups), needs.describe),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (read(topics.group_config), needs.describe),
        RequestCode.VIEW_MESSAGE_BY_ID: (messages.view_message, needs.consume_any),
        RequestCode.QUERY_MESSAGE: (messages.query_message, needs.consume_topic),
        RequestCode.GET_CONSUMER_GROUPS: (read(groups.consumer_groups), needs.describe),
        RequestCode.GET_GROUP_MEMBERS: (members.members, needs.describe),
        RequestCode.GET_WAITING_OF_TOPIC: (read(admin.waiting_of_topic), needs.describe),
        RequestCode.CHANGE_GROUP_MEMBERS: (members.change, needs.administer),
        RequestCode.TRANSFER_LEADERSHIP: (members.transfer, needs.administer),
        RequestCode.GET_BROKER_RUNTIME_INFO: (admin.runtime_info, needs.describe),
        RequestCode.VIEW_BROKER_STATS_DATA: (broker_stats.view, needs.describe),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (clean, needs.administer),
        RequestCode.CLEAN_UNUSED_TOPIC: (clean, needs.administer),
        RequestCode.DELETE_EXPIRED_COMMITLOG: (clean, needs.administer),
        RequestCode.GET_BROKER_CONFIG: (admin.broker_config, needs.describe),
        RequestCode.UPDATE_BROKER_CONFIG: (admin.update_config, needs.administer),
        RequestCode.GET_ALL_CONSUMER_OFFSET: (read(admin.all_consumer_offsets), needs.describe),
        RequestCode.GET_TOPIC_STATS_INFO: (read(admin.topic_stats), needs.describe),
        RequestCode.GET_CONSUME_STATS: (read(groups.consume_stats), needs.describe),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (read(groups.groups_of_topic), needs.describe),
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (accounts.update, needs.administer),
        RequestCode.DELETE_ACL_CONFIG: (accounts.delete, needs.administer),
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (read(accounts.version), needs.administer),
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
            accounts.update_white_list,
            needs.administer,
        ),
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: (read(accounts.config), needs.administer),
    }
    handlers = {code: handler for code, (handler, _) in served.items()}
    return handlers, {code: needed for code, (_, needed) in served.items()}


ALWAYS_ENFORCED = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    )
)
"""Refused even if access control is permissive: anybody could become an admin by them."""

SERVED_WHEN_STATE_DIVERGED = frozenset((RequestCode.GET_BROKER_RUNTIME_INFO,))
"""Codes that a node answers even while its state differs from its group's."""


def refuse_wrong_state(_connection: Connection, _request: Frame) -> None:
    """The handler of all other codes while the state of this node differs from its group's."""
    raise WrongStateError
