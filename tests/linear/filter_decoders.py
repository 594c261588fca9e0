"""Decoders of filters of consumers, and filters at work, with inputs that grow."""

from __future__ import annotations

from broker.delivery.message_filter import SCAN_LIMITS, selected
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus
from broker.filter.sql92_parser import parse_selector
from broker.filter.subscription import tag_codes
from tests.linear.decoder import LETTERS, Decoder
from tests.linear.feeding import both, letters, nested_ranges, records, selected_by, text
from tests.linear.growing_inputs import SQL_SHAPES, TAG_SHAPES

FILTERS = [
    Decoder("filter expression", text(parse_selector), SQL_SHAPES),
    Decoder("nested filter expression", nested_ranges, LETTERS),
    Decoder(
        "number that a filter compares",
        both(selected_by("a = 1.5"), selected_by("a = 1"), selected_by("a > 1")),
        [
            (b"", b"1", b"x"),
            (b"", b"1", b""),
            (b"1.", b"1", b"x"),
            (b"1e", b"1", b"x"),
            (b"", b" ", b"x"),
        ],
    ),
    Decoder(
        "text that a filter compares",
        both(
            selected_by("a CONTAINS 'ab'"),
            selected_by("a IN ('x', 'y')"),
            selected_by("a = 'x'"),
        ),
        TAG_SHAPES,
    ),
    Decoder(
        "records that a filter selects",
        lambda data: selected(
            parse_selector("a = '1'"),
            0,
            GetMessageResult(GetMessageStatus.FOUND, 1, 0, 0),
            [records(letters(data), b"a\x011\x02")],
            SCAN_LIMITS,
        ),
        LETTERS,
    ),
    Decoder("tag expression", text(tag_codes), TAG_SHAPES),
]
