"""Decoders of what operators set, with inputs that grow."""

from __future__ import annotations

from broker.config.dynamic_settings import changed_settings
from broker.quotas.quota import parse_entity, parse_quota
from broker.remoting.processors.topic_attributes import changed_attributes
from broker.security.permissions import parse_permission, parse_permissions
from broker.security.white_list import split_white_list
from tests.linear.decoder import Decoder
from tests.linear.feeding import both, text
from tests.linear.growing_inputs import LINE_SHAPES

OPERATOR = [
    Decoder("settings", changed_settings, LINE_SHAPES),
    Decoder(
        "quota",
        both(text(parse_quota), text(parse_entity)),
        [*LINE_SHAPES, (b"", b"produceBytes=1,", b""), (b"quota.topic.", b"a", b"")],
    ),
    Decoder(
        "topic attributes",
        text(changed_attributes),
        [*LINE_SHAPES, (b"", b"+message.type=A,", b"")],
    ),
    Decoder(
        "permissions",
        both(text(parse_permissions), text(parse_permission)),
        [*LINE_SHAPES, (b"", b"a=PUB,", b"b=SUB"), (b"a", b"=", b"PUB")],
    ),
    Decoder(
        "white list",
        text(split_white_list),
        [*LINE_SHAPES, (b"10.0.0.{", b"1,", b"2}"), (b"", b"{,", b""), (b"", b"10.0.0.1,", b"*")],
    ),
]
