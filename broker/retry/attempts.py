"""How often a group has failed at a message, and whether it tries once more.

One rule for clients of RocketMQ 4, which send messages back (code 36), and for those of RocketMQ 5,
which receive them by POP. So the attempts of a group that changes its clients add up. They are
counted in two places:

- The record has those that ended with a copy in the retry topic (``reconsumeTimes``).
- The state has the deliveries by POP, in the present queue of the message
  (:mod:`broker.state.pop_queues`).

Only the leader asks here. Its decision is in the log, as a message and the end of a delivery.
"""

from __future__ import annotations

from broker.state.pop_queues import PopDelivery
from broker.topics_and_groups import GroupConfig

ATTEMPTS_MAX = 2**31 - 1
"""Format: a record has an i32 for the attempts."""


def attempts(reconsume_times: int, deliveries: int) -> int:
    """How often a group got a message: by its record, and by ``deliveries`` by POP.

    A producer may say any number of attempts, also one below 0, which counts as 0.
    """
    return min(max(reconsume_times, 0) + deliveries, ATTEMPTS_MAX)


def attempts_sent_back(reconsume_times: int, delivery: PopDelivery | None, now_ms: int) -> int:
    """How often a group has failed at a message that a member sends back; ``delivery`` is its last
    one by POP, ``now_ms`` the time of the store clock.

    A member that got the message by POP fails at that delivery, which is counted. If no delivery
    is out, the member has pulled the message, and that attempt is counted here.
    """
    if delivery is None:
        return attempts(reconsume_times, 1)
    is_out = delivery.attempt > 0 and delivery.visible_ms > now_ms
    return attempts(reconsume_times, delivery.attempt + (not is_out))


def retries_exhausted(
    group: GroupConfig, failures: int, times_max: int = -1, delay_level: int = 0
) -> bool:
    """Whether there is no further attempt after so many failed ones; a level below 0 asks for none.

    ``times_max``: the retries that the client allows; below 0: as many as the group's settings. A
    group without retry queues has no retries, whatever its client allows.
    """
    if times_max < 0 or group.retry_queues <= 0:
        times_max = group.retries_max
    return failures > times_max or delay_level < 0
