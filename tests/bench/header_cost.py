"""CPU time of a send request by client, without storing and replicating.

Run by hand: ``python -m tests.bench.header_cost [ROUNDS]``. Requests in the form of each client are
processed as in a broker: cut out of the stream, header read, properties and keys read, answer
encoded. Each message has a unique key and a key of its own, and goes to the next queue. A second
column has the time if each header is parsed, without header templates.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from broker.ingest.property_templates import MessageBuilder, origin
from broker.remoting.processors.send_message import STORED
from broker.remoting.processors.send_message_header import (
    LONG_NAMES,
    SHORT_NAMES,
    HeaderNames,
    read_header,
    read_templated_header,
)
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame, encode_request
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.protocol.header_templates import TemplatedFrame
from tests.broker.remoting.protocol.client_headers import CLIENTS, fields

MESSAGES = 20_000
AT_ONCE = 64
"""Frames in one chunk of the stream, as with many sends in flight."""

BODY = bytes(1024)
QUEUES = 4


def own(opaque: int, ext: Mapping[str, str]) -> bytes:
    """The Python client's."""
    return encode_request(RequestCode.SEND_MESSAGE_V2, opaque, ext)


def chunks(write: Callable[[int, Mapping[str, str]], bytes]) -> list[bytes]:
    frames = []
    for number in range(MESSAGES):
        properties = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01order-{number:08}\x02TAGS\x01paid\x02"
        ext = fields(number % QUEUES, 1_700_000_000_000 + number, properties)
        head = write(100_000 + number, ext)
        frames.append((int.from_bytes(head[:4]) + len(BODY)).to_bytes(4) + head[4:] + BODY)
    return [b"".join(frames[start : start + AT_ONCE]) for start in range(0, MESSAGES, AT_ONCE)]


def serve(stream: Sequence[bytes], names: HeaderNames, *, parse: bool) -> float:
    """Microseconds of CPU for each message."""
    reader, builder, stored = FrameReader(), MessageBuilder("cluster"), 0
    if parse:
        reader._templates.codes = frozenset()  # no header becomes a template
    began = time.process_time()
    for chunk in stream:
        for frame in reader.feed(chunk):
            take(frame, names, builder, stored)
            stored += 1
    assert stored == MESSAGES
    return (time.process_time() - began) / MESSAGES * 1e6


def take(frame: Frame, names: HeaderNames, builder: MessageBuilder, position: int) -> None:
    """What is done with a request besides storing its message."""
    sent = read_templated_header(frame, names) if type(frame) is TemplatedFrame else None
    if sent is None:
        sent = read_header(frame, names)
    of = origin(sent.topic, sent.sys_flag, sent.born_timestamp, bytes(8), sent.reconsume_times)
    message = builder.build(of, sent.flag, frame.body, sent.properties)
    STORED.encode(frame, b"7F00000100002A9F%016X" % position, sent.queue_id, message.size)


def main(rounds: str = "5") -> None:
    clients = {"Python": own, **CLIENTS}
    runs: dict[tuple[str, bool], Callable[[], float]] = {}
    for client, write in clients.items():
        names = LONG_NAMES if client == "C++" else SHORT_NAMES
        stream = chunks(write)
        for parse in (False, True):
            runs[client, parse] = partial(serve, stream, names, parse=parse)
    costs: dict[tuple[str, bool], list[float]] = {run: [] for run in runs}
    for _ in range(int(rounds)):  # in turns: what else the machine does hits all of them
        for run, measure in runs.items():
            costs[run].append(measure())
    print(f"{'':14} {'CPU us each':>12} {'all parsed':>12}")
    for client in clients:
        usual, parsed = (median(costs[client, parse]) for parse in (False, True))
        print(f"{client:14} {usual:12.2f} {parsed:12.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
