"""Values of offset registers: forwards and back, within the range of their queue.

A register that only rises cannot tell the last of two writes from the higher. Each value is written
once to a register, so a read names the write that it saw. When a register has had all values,
another takes its place: the same queue, read by another group.
"""

from __future__ import annotations

from random import Random

from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.message import Message, MessageQueue
from broker.client.producer.producer import Producer

TOPIC = "registers"
OFFSET_REGISTERS = 2
QUEUE_END = 24
"""Each queue of the topic holds at least this number of messages before an offset is written."""

BATCH = 8


class RegisterValues:
    """The next values for each register, for all clients of a run."""

    def __init__(self, rng: Random) -> None:
        self.filled = False
        """Whether the queues have their messages."""
        self._rng = rng
        self._rounds = [0] * OFFSET_REGISTERS
        self._left = [self._shuffled() for _ in range(OFFSET_REGISTERS)]

    def _shuffled(self) -> list[int]:
        values = list(range(QUEUE_END + 1))
        self._rng.shuffle(values)
        return values

    def group(self, place: int) -> str:
        """The consumer group whose offset is the register now."""
        return f"registers-{self._rounds[place]}"

    def next_value(self, place: int) -> int:
        """An offset that was not written to the register yet. Call it before :meth:`group`."""
        if not self._left[place]:
            self._rounds[place] += 1
            self._left[place] = self._shuffled()
        return self._left[place].pop()


async def fill(producer: Producer, requests: ConsumerRequests, address: str, broker: str) -> None:
    """Makes sure that each queue of the topic holds ``QUEUE_END`` messages.

    Raises as the requests and the producer do; it can then be called again.
    """
    for place in range(OFFSET_REGISTERS):
        queue = MessageQueue(TOPIC, broker, place)
        while await requests.max_offset(address, queue) < QUEUE_END:
            await producer.send_batch([Message(TOPIC, b"-")] * BATCH, queue)
