"""The errors of the store. Each says which file, which byte, and what to do."""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that the store raises on purpose."""

    @property
    def told(self) -> str:
        """The text for clients of the broker. It names no path: where a node keeps its files is
        none of their business."""
        return str(self)


class CorruptEntryError(StoreError):
    """Bytes that should be a log entry are not one: what is wrong, expected, found.

    ``reason`` names a field of an entry where ``expected`` is given: findings say "an entry with
    ``reason`` ``expected``". Otherwise it says in words what is wrong.
    """

    def __init__(self, reason: str, *, expected: object = None, found: object = None) -> None:
        self.reason = reason
        self.expected = expected
        self.found = found
        detail = (
            "" if expected is None and found is None else f": expected {expected}, found {found}"
        )
        super().__init__(f"{reason}{detail}")


class EntryTooLargeError(StoreError):
    """An entry larger than a segment can hold."""

    def __init__(self, size: int, size_max: int) -> None:
        self.size = size
        self.size_max = size_max
        super().__init__(f"an entry of {size} bytes exceeds the {size_max} that a segment can hold")


class OutOfRangeError(StoreError):
    """The log does not hold this index or position: it has expired, or is not written yet."""


class NotReplicatedYetError(OutOfRangeError):
    """The group has committed this position, but this node's disk does not hold it yet."""


class MisplacedError(OutOfRangeError):
    """The log holds this position, but no single entry has these bytes."""

    def __init__(self, position: int, size: int) -> None:
        self.position = position
        super().__init__(f"no one entry has {size} bytes at position {position}")


class CorruptRecordError(StoreError):
    """Bytes that should be a message record are not one."""


class CorruptBatchError(StoreError):
    """The body of a DATA entry is not a batch of records."""


class DamagedError(StoreError):
    """Bytes below the durable commit point are wrong: reported, never cut."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(f"{path}, byte {position}: {reason}")

    @property
    def told(self) -> str:
        *_, directory, name = f"./{self.path}".split("/")
        # Files that are named by their first byte are parts of one whole, such as the log.
        place = (
            f"byte {int(name) + self.position} of the {directory}"
            if name.isdecimal()
            else f"byte {self.position} of {name}"
        )
        return f"{place}: {self.reason.replace(self.path, name)}"


class DerivedDamageError(DamagedError):
    """Derived rows are damaged. The node rebuilds them from the log: the caller asks again later.

    ``log_position`` is a position of the log at or before the first of their records.
    """

    def __init__(self, path: str, position: int, reason: str, log_position: int) -> None:
        self.log_position = log_position
        super().__init__(path, position, f"{reason}; made again from the log")

    @property
    def told(self) -> str:
        return f"rows of records from position {self.log_position} on: {self.reason}"


class UnreadableError(DamagedError):
    """Bytes could not be read. They may still be right."""


class DataFormatError(StoreError):
    """The directory belongs to another node, another group or another format version."""


class DataLockedError(StoreError):
    """Another live process has this data directory open."""


class DiskFullError(StoreError):
    """There is no room for more log. Reads and stored data are unaffected."""

    retriable = True

    @property
    def told(self) -> str:
        return "the disk of this node has no room"


class OutOfDescriptorsError(DiskFullError):
    """Too many files are open, in this process or on the machine. Nothing was done, and the disk
    is fine. As for a full disk, the caller tries again later."""

    @property
    def told(self) -> str:
        return "too many files are open on this node"


class FatalDiskError(StoreError):
    """A write or a sync failed. What the disk holds is unknown, so the process must stop."""

    @property
    def told(self) -> str:
        return "the disk of this node failed"


class SnapshotError(StoreError):
    """A snapshot cannot be made there, or not now. The replica is unchanged."""
