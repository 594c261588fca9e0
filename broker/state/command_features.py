"""The feature that a command needs: every member must know it before the command enters the log.

See :mod:`dledger.wire.features`. Commands that all programs know are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.state.commands import (
    Command,
    PopAck,
    PopChange,
    PopForget,
    PopReceive,
    PopWait,
    Proof,
    PutAccess,
    PutTopicRetention,
    Recall,
    Trim,
)
from dledger.wire.features import ACCESS_CONTROL, POP, RECALL, STATE_PROOF, TOPIC_RETENTION

FEATURE_OF: Mapping[type[Command], str] = {
    PutAccess: ACCESS_CONTROL,
    PopReceive: POP,
    PopWait: POP,
    PopAck: POP,
    PopChange: POP,
    PopForget: POP,
    Recall: RECALL,
    Proof: STATE_PROOF,
    PutTopicRetention: TOPIC_RETENTION,
    Trim: TOPIC_RETENTION,
}
