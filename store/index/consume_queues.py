"""All ConsumeQueues of a replica. A checkpoint makes them durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from store.index.block_seals import Tail, unsealed
from store.index.consume_queue import ConsumeQueue
from store.index.queue_rows import ROWS_PER_FILE, OpenFiles
from store.index.queue_tails import read_tails, write_tails
from store.io.filesystem import FileSystem

BARRIER_QUEUES = 64
"""With this many queues to flush, one barrier for all is cheaper than three syncs for each."""


class QueuesFlush:
    """Writes the rows that all queues had when it was made, then the file of their tails."""

    def __init__(
        self, fs: FileSystem, directory: str, queues: Sequence[ConsumeQueue], strays: set[str]
    ) -> None:
        """``directory``: that of the queues. ``strays``: see :class:`ConsumeQueues`. Event loop,
        which stands still meanwhile. So all that takes longer than to look at each queue is left to
        :meth:`run` and :meth:`lengths`."""
        self._fs = fs
        self._directory = directory
        self._queues = queues
        self._strays = strays
        self._bounds = [(queue.first_offset, queue.end_offset) for queue in queues]
        self._written: dict[ConsumeQueue, Tail] = {}

    def lengths(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, first offset, end offset) of every queue as it was when this was made,
        in order. Any thread."""
        return [
            (queue.topic, queue.queue_id, *bounds)
            for queue, bounds in zip(self._queues, self._bounds, strict=True)
        ]

    def run(self) -> None:
        """Makes the rows durable, and the tails. Blocks; runs on a background thread.

        Nothing is written if no queue has new rows.
        """
        if self._strays:
            known = {queue.directory for queue in self._queues}
            for path in sorted(self._strays - known):
                self._fs.remove_tree(path)
        new = [
            (queue, end)
            for queue, (_, end) in zip(self._queues, self._bounds, strict=True)
            if end > queue.flushed_end
        ]
        if not new:
            return
        few = len(new) < BARRIER_QUEUES
        written = {queue: queue.write_until(end, sync=few) for queue, end in new}
        if few:
            self._sync_names(written)
        else:
            self._fs.sync_all(self._directory)
        # Other tails are taken now, because the scrub may have replaced some since the flush began.
        tails = (
            (queue.topic, queue.queue_id, written.get(queue, queue.tail)) for queue in self._queues
        )
        write_tails(
            self._fs,
            state_directory(self._directory),
            [each for each in tails if each[2].position >= 0],
        )
        self._written = written

    def _sync_names(self, written: Iterable[ConsumeQueue]) -> None:
        """Those of directories that a dead process may have made without a sync."""
        taken_over = [queue.directory for queue in written if queue.directory in self._strays]
        for topic in sorted({path.rpartition("/")[0] for path in taken_over}):
            self._fs.sync_directory(topic)
        if taken_over:
            self._fs.sync_directory(self._directory)

    def finish(self) -> None:
        """Frees the memory of the rows. Event loop."""
        self._strays.clear()
        for queue, tail in self._written.items():
            queue.flushed(tail)


def state_directory(directory: str) -> str:
    """The ``state`` directory of the replica with these ConsumeQueues."""
    return f"{directory.rpartition('/')[0]}/state"


class ConsumeQueues:
    """All queues of a replica, by topic and queue id. Their files lie below ``directory``."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        rows_per_file: int = ROWS_PER_FILE,
        open_max: int = 256,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._rows_per_file = rows_per_file
        self._files = OpenFiles(fs, open_max)
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self._in_order: Sequence[ConsumeQueue] | None = None
        self._strays: set[str] = set()
        """Directories that a dead process made behind its last checkpoint. As a rule the log brings
        their queues again. The next flush removes the others."""

    def tell_damage(self, on_damage: Callable[[int], None]) -> None:
        """Sets what is called when a damaged row is read, with the position of the log from which
        on rows must be rebuilt."""
        self._files.on_damage = on_damage

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message."""
        queues = self._queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of_topic(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """The topic's queues that ever had a message, by id."""
        return self._queues.get(topic, {})

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue. If there is none, a new one begins at offset 0."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = ConsumeQueue(
                self._files, self._directory, topic, queue_id, self._rows_per_file
            )
            self._in_order = None
            if queue.directory in self._strays:
                queue.restore(0, unsealed(0, self._rows_per_file))
        return queue

    def all(self) -> Sequence[ConsumeQueue]:
        """Every queue, in the order of topic and id."""
        if self._in_order is None:
            self._in_order = [
                queue
                for _, queues in sorted(self._queues.items())
                for _, queue in sorted(queues.items())
            ]
        return self._in_order

    def begin_flush(self) -> QueuesFlush:
        """A job that makes every queue and its tail durable. One at a time."""
        return QueuesFlush(self._fs, self._directory, self.all(), self._strays)

    def lengths(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, first offset, end offset) of every queue, for a checkpoint."""
        return [
            (queue.topic, queue.queue_id, queue.first_offset, queue.end_offset)
            for queue in self.all()
        ]

    def restore(self, lengths: Iterable[tuple[str, int, int, int]]) -> None:
        """Sets the queues to what a checkpoint lists. The files of all others are strays."""
        self._queues = {}
        self._strays = set()
        self._in_order = None
        self._files.forget(f"{self._directory}/")
        tails = read_tails(self._fs, state_directory(self._directory))
        files, directory, per_file = self._files, self._directory, self._rows_per_file
        for topic, queue_id, first_offset, end_offset in lengths:
            tail = tails.get((topic, queue_id))
            if tail is None or tail.end != end_offset:
                tail = unsealed(end_offset, per_file)
            queue = ConsumeQueue(files, directory, topic, queue_id, per_file)
            queue.restore(first_offset, tail)
            self._queues.setdefault(topic, {})[queue_id] = queue
        if not self._fs.exists(self._directory):
            return
        for topic in self._fs.list_directory(self._directory):
            found = set(self._fs.list_directory(f"{self._directory}/{topic}"))
            found.difference_update(map(str, self._queues.get(topic, ())))
            self._strays.update(f"{self._directory}/{topic}/{name}" for name in found)

    def delete(self, topic: str) -> None:
        """Drops a topic's queues and their files."""
        self._queues.pop(topic, None)
        self._in_order = None
        self._files.forget(f"{self._directory}/{topic}/")
        self._fs.remove_tree(f"{self._directory}/{topic}")

    def expire(self, position: int) -> None:
        """Moves every queue's first offset past records below ``position``."""
        for queue in self.all():
            queue.expire(position)
