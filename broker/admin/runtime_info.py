"""The runtime info of a broker for tools (28)."""

from __future__ import annotations

import json
import os

from broker.admin.node_status import NodeStatus, security_settings
from broker.admin.waiting_messages import undelivered_count
from broker.context import BrokerContext
from broker.metrics.build_info import program_version
from broker.remoting.protocol.codes import PROTOCOL_VERSION
from store.io.disk_watermarks import DiskSpace


def _capacity(space: DiskSpace) -> str:
    """The space in RocketMQ's format."""
    return f"Total : {space.total} bytes, Free : {space.free} bytes."


def runtime_info(context: BrokerContext) -> dict[str, str]:
    """RocketMQ's keys that apply here, and the state of the group."""
    node, stats = context.node, context.stats
    refill = node.snapshot_receiver.progress
    status = NodeStatus.of(context)
    members = {
        name: {"address": at.client, "http": at.http, "peer": at.peer}
        for name, at in status.members.items()
    }
    return {
        "raftGroup": status.group,
        "raftNode": status.node,
        "raftRole": status.role,
        "raftTerm": str(status.term),
        "raftLeader": status.leader or "",
        "raftServing": "true" if status.serving else "false",
        "raftLastIndex": str(status.last_index),
        "raftCommitIndex": str(status.commit_index),
        "raftAppliedIndex": str(status.applied_index),
        "raftMember": status.member,
        "raftIncarnation": f"{status.incarnation:016x}" if status.incarnation else "",
        "raftJoint": "true" if status.old_voters else "false",
        "raftVoters": json.dumps(status.voters),
        "raftOldVoters": json.dumps(status.old_voters),
        "raftOwnMember": json.dumps(status.own._asdict()),
        "raftMembers": json.dumps(members),
        "pid": str(os.getpid()),
        "programVersion": program_version(),
        "httpAddress": status.own.http,
        "grpcAddress": status.grpc,
        "bootTimestamp": str(stats.boot_ms),
        "brokerVersion": str(PROTOCOL_VERSION),
        "brokerVersionDesc": "V4_9_8",
        "commitLogMaxOffset": str(context.machine.applied_end),
        "commitLogDirCapacity": _capacity(node.store.disk_space()),
        "commitLogDiskRatio": f"{node.store.disk_space().used_percent / 100:.4f}",
        "security": json.dumps(security_settings(context.config)),
        "damage": json.dumps([*node.scrubber.damage_summary, *context.proofs.problems]),
        "repaired": json.dumps(list(node.scrubber.repaired)),
        "mended": json.dumps(list(node.scrubber.repaired)),  # for earlier programs
        "refilling": "" if refill is None else f"{refill[0]} of {refill[1]}",
        "diskLevel": node.health.disk.level.name.lower(),
        "dispatchBehindBytes": "0",
        "undeliveredMessages": str(undelivered_count(context)),
        "heldPulls": str(len(context.delivery.long_polling)),
        "putMessages": str(stats.put_messages),
        "getMessages": str(stats.get_messages),
        **_rocketmq_stats(context),
    }


def _rocketmq_stats(context: BrokerContext) -> dict[str, str]:
    """Fields that Apache's tools need.

    This broker has no thread pools and no page cache lock, so the waiting times are 0.
    """
    stats, rates = context.stats, context.rates
    return {
        "runtime": f"[ {(context.wall_clock() - stats.boot_ms) // 1000} seconds ]",
        "msgPutTotalYesterdayMorning": str(rates.yesterday.put_messages),
        "msgPutTotalTodayMorning": str(rates.today.put_messages),
        "msgPutTotalTodayNow": str(stats.put_messages),
        "msgGetTotalYesterdayMorning": str(rates.yesterday.get_messages),
        "msgGetTotalTodayMorning": str(rates.today.get_messages),
        "msgGetTotalTodayNow": str(stats.get_messages),
        "putTps": rates.tps(lambda sample: sample.put_messages),
        "getTransferedTps": rates.tps(lambda sample: sample.get_messages),
        "getTotalTps": rates.tps(lambda sample: sample.pulls),
        "getFoundTps": rates.tps(lambda sample: sample.pulls_found),
        "getMissTps": rates.tps(lambda sample: sample.pulls_missed),
        "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "pageCacheLockTimeMills": "0",
        "commitLogMinOffset": str(context.machine.expired_position),
    }
