"""Transactions of the C++ core 2.1 (``rocketmq-python-cvs``), printing one JSON line each.

Runs with the package's directory on the path::

    PYTHONPATH=build/clients/rocketmq_2 python cpp_transactions.py NAMESRV TOPIC COUNT

Number *n* is committed if ``n % 4`` is 0, rolled back if it is 1, and left unknown otherwise. When
the broker asks, 2 is committed and 3 rolled back. Unacknowledged messages are rolled back. The
program prints a line when all unknown outcomes have been asked about, and runs until its input
ends: its answers are one-way, and the broker asks again if one is lost.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time

from rocketmq.client import Message
from rocketmq.ffi import _CSendResult, dll

COMMIT, ROLLBACK, UNKNOWN = 0, 1, 2
OUTCOMES = (COMMIT, ROLLBACK, UNKNOWN, UNKNOWN)
TRIES = 100
RETRY_SECONDS = 0.2
QUIET_SECONDS = 120.0

# Functions of the shipped library that the package does not declare (CProducer.h).
LISTENER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
dll.CreateTransactionProducer.argtypes = [ctypes.c_char_p, LISTENER, ctypes.c_void_p]
dll.CreateTransactionProducer.restype = ctypes.c_void_p
dll.SendMessageTransaction.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    LISTENER,
    ctypes.c_void_p,
    ctypes.c_void_p,
]

executed: dict[str, int] = {}
"""By unique key: the outcome that a transaction is to have in the end. The library makes a new key
for each try of its own, so a half message whose answer was lost is not in it."""
unknown: set[str] = set()
asked: set[str] = set()
lock = threading.Lock()


def emit(**fields: object) -> None:
    """Prints one line."""
    with lock:
        print(json.dumps(fields), flush=True)


def key_of(message: int) -> str:
    """Its UNIQ_KEY."""
    key: bytes = dll.GetMessageProperty(message, b"UNIQ_KEY")
    return key.decode()


def check(_producer: object, message: int, _data: object) -> int:
    """The check-back: the broker asks how a transaction has ended."""
    key = key_of(message)
    outcome = executed.get(key, ROLLBACK)
    asked.add(key)
    emit(asked=key, committed=outcome == COMMIT)
    return outcome


def execute(_producer: object, message: int, data: int | None) -> int:
    """The half message is stored: does the local transaction of number ``data``."""
    number = data or 0  # a null pointer is None
    key = key_of(message)
    executed[key] = (COMMIT, ROLLBACK)[number % 2]
    if OUTCOMES[number % 4] == UNKNOWN:
        unknown.add(key)
    return OUTCOMES[number % 4]


def send(producer: int, executor: object, topic: str, number: int) -> int:
    """The offset of the half message."""
    for _ in range(TRIES):
        message = Message(topic)
        message.set_body(str(number))
        result = _CSendResult()
        data = ctypes.c_void_p(number)
        if not dll.SendMessageTransaction(producer, message, executor, data, ctypes.byref(result)):
            return int(result.offset)
        time.sleep(RETRY_SECONDS)
    return sys.exit(f"{number} was not sent in {TRIES} tries")


def main() -> None:
    """Sends, waits until all unknown outcomes have been asked about, then until the input ends."""
    namesrv, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    checker, executor = LISTENER(check), LISTENER(execute)
    producer = dll.CreateTransactionProducer(b"payers", checker, None)
    dll.SetProducerNameServerAddress(producer, namesrv.encode())
    dll.StartProducer(producer)
    for number in range(count):
        emit(n=number, half_offset=send(producer, executor, topic, number))
    until = time.monotonic() + QUIET_SECONDS
    while unknown - asked and time.monotonic() < until:
        time.sleep(RETRY_SECONDS)
    emit(open=len(unknown - asked))
    sys.stdin.read()
    dll.ShutdownProducer(producer)
    if unknown - asked:
        sys.exit(f"never asked about: {sorted(unknown - asked)}")


main()
