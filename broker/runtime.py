"""What a broker says of itself: runtime info (28) for tools, and ``/status`` for people."""

from __future__ import annotations

import json
import os

from broker.context import BrokerContext
from broker.members import member_addresses, own_address, standing
from broker.remoting.codes import PROTOCOL_VERSION
from dledger.standing import Role
from store.watermarks import DiskSpace

_ROLES = {
    Role.LEADER: "leader",
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "candidate",
    Role.CANDIDATE: "candidate",
}


def role_name(context: BrokerContext) -> str:
    """leader, follower, candidate or learner.

    Who only asks for votes is a candidate to an operator, and who counts for nothing a learner.
    """
    core = context.node.core
    return _ROLES[core.role] if core.counts else "learner"


def _capacity(space: DiskSpace) -> str:
    """RocketMQ's words for it."""
    return f"Total : {space.total} bytes, Free : {space.free} bytes."


def runtime_info(context: BrokerContext) -> dict[str, str]:
    """RocketMQ's keys where they mean something here, and what there is to say of the group."""
    config, node, stats = context.config, context.node, context.stats
    core, leadership = node.core, node.leadership
    refill = node.catch_up.progress
    members = {
        name: {"address": at.client, "http": at.http, "peer": at.peer}
        for name, at in member_addresses(config, core.configuration).items()
    }
    return {
        "raftGroup": config.group,
        "raftNode": config.node,
        "raftRole": role_name(context),
        "raftTerm": str(core.term),
        "raftLeader": leadership.leader or "",
        "raftServing": "true" if leadership.serving else "false",
        "raftLastIndex": str(core.log.last_index),
        "raftCommitIndex": str(core.commit_index),
        "raftAppliedIndex": str(node.applied_index),
        "raftMember": standing(context),
        "raftIncarnation": f"{core.incarnation:016x}" if core.incarnation else "",
        "raftJoint": "true" if core.configuration.is_joint else "false",
        "raftOwnMember": json.dumps(own_address(config)._asdict()),
        "raftMembers": json.dumps(members),
        "pid": str(os.getpid()),
        "httpAddress": str(config.own.http),
        "bootTimestamp": str(stats.boot_ms),
        "brokerVersion": str(PROTOCOL_VERSION),
        "brokerVersionDesc": "V4_9_8",
        "commitLogMaxOffset": str(context.machine.applied_end),
        "commitLogDirCapacity": _capacity(node.store.disk_space()),
        "commitLogDiskRatio": f"{node.store.disk_space().used_percent / 100:.4f}",
        "damage": json.dumps(node.scrubber.told_damage),
        "mended": json.dumps(list(node.scrubber.mended)),
        "refilling": "" if refill is None else f"{refill[0]} of {refill[1]}",
        "diskLevel": node.fitness.level.name.lower(),
        "dispatchBehindBytes": "0",
        "heldPulls": str(len(context.holds)),
        "putMessages": str(stats.put_messages),
        "getMessages": str(stats.get_messages),
        **_rocketmq_stats(context),
    }


def _rocketmq_stats(context: BrokerContext) -> dict[str, str]:
    """What Apache's tools read, and fail without.

    There are no thread pools and no lock of a page cache here, so nothing ever waits for them.
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
