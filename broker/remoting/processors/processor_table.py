"""The handler of each request code; an unknown code is answered with 3."""

from __future__ import annotations

from collections.abc import Mapping

from broker.context import BrokerContext
from broker.errors import WrongStateError
from broker.maintenance.retention import Retention
from broker.remoting.connection import Connection, Handler
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
from broker.remoting.processors.pop_message import PopProcessor
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


def broker_handlers(context: BrokerContext, retention: Retention) -> Mapping[int, Handler]:
    """The handlers of one broker, by request code."""
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
    return {
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send_v2,
        RequestCode.SEND_BATCH_MESSAGE: send.send_batch,
        RequestCode.CONSUMER_SEND_MSG_BACK: SendBackProcessor(context).send_back,
        RequestCode.PULL_MESSAGE: pull.pull,
        RequestCode.LITE_PULL_MESSAGE: pull.pull,
        RequestCode.POP_MESSAGE: pop.pop,
        RequestCode.ACK_MESSAGE: pop.ack,
        RequestCode.BATCH_ACK_MESSAGE: pop.ack_batch,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop.change_invisible_time,
        RequestCode.NOTIFICATION: pop.notification,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_consumer_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: linearizable(context, offsets.search_offset),
        RequestCode.GET_MAX_OFFSET: linearizable(context, offsets.max_offset),
        RequestCode.GET_MIN_OFFSET: linearizable(context, offsets.min_offset),
        RequestCode.GET_EARLIEST_MSG_STORETIME: linearizable(context, offsets.earliest_store_time),
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_client_config,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: clients.consumer_connections,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: clients.producer_connections,
        RequestCode.GET_ALL_PRODUCER_INFO: clients.all_producers,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.RECALL_MESSAGE: RecallMessageProcessor(context).recall,
        RequestCode.LOCK_BATCH_MQ: locks.lock,
        RequestCode.QUERY_CONSUME_TIME_SPAN: linearizable(context, groups.time_spans),
        RequestCode.GET_BROKER_CONSUME_STATS: linearizable(context, groups.all_consume_stats),
        RequestCode.QUERY_CONSUME_QUEUE: linearizable(context, consumption.queue_rows),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: linearizable(context, groups.topics_of_group),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: groups.subscription_of_group,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relay.consumer_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: relay.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: relay.consume_directly,
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply_v2,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
        RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: linearizable(context, topics.all_topics),
        RequestCode.GET_TOPIC_CONFIG: linearizable(context, topics.topic_config),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topics.create_group,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: topics.delete_group,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: linearizable(context, topics.all_groups),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: linearizable(context, topics.group_config),
        RequestCode.VIEW_MESSAGE_BY_ID: messages.view_message,
        RequestCode.QUERY_MESSAGE: messages.query_message,
        RequestCode.GET_CONSUMER_GROUPS: linearizable(context, groups.consumer_groups),
        RequestCode.GET_GROUP_MEMBERS: members.members,
        RequestCode.GET_WAITING_OF_TOPIC: linearizable(context, admin.waiting_of_topic),
        RequestCode.CHANGE_GROUP_MEMBERS: members.change,
        RequestCode.TRANSFER_LEADERSHIP: members.transfer,
        RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        RequestCode.VIEW_BROKER_STATS_DATA: broker_stats.view,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean,
        RequestCode.CLEAN_UNUSED_TOPIC: clean,
        RequestCode.DELETE_EXPIRED_COMMITLOG: clean,
        RequestCode.GET_BROKER_CONFIG: admin.broker_config,
        RequestCode.UPDATE_BROKER_CONFIG: admin.update_config,
        RequestCode.GET_ALL_CONSUMER_OFFSET: linearizable(context, admin.all_consumer_offsets),
        RequestCode.GET_TOPIC_STATS_INFO: linearizable(context, admin.topic_stats),
        RequestCode.GET_CONSUME_STATS: linearizable(context, groups.consume_stats),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: linearizable(context, groups.groups_of_topic),
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: accounts.update,
        RequestCode.DELETE_ACL_CONFIG: accounts.delete,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: linearizable(context, accounts.version),
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: accounts.update_white_list,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: linearizable(context, accounts.config),
    }


SERVED_WHEN_STATE_DIVERGED = frozenset((RequestCode.GET_BROKER_RUNTIME_INFO,))
"""Codes that a node answers even while its state differs from its group's."""


def refuse_wrong_state(_connection: Connection, _request: Frame) -> None:
    """The handler of all other codes while the state of this node differs from its group's."""
    raise WrongStateError
