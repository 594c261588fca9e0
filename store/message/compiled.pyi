from store.io.filesystem import Bytes
from store.message.record import PendingMessage

def find_records(data: bytes, /) -> tuple[bytes, int]: ...
def pack_run(
    messages: list[PendingMessage],
    topic_part: bytes,
    queue_id: int,
    first_offset: int,
    position: int,
    stored: bytes,
    store_seconds: int,
    /,
) -> tuple[list[Bytes], bytes, bytes]: ...
def take_alike(
    messages: list[PendingMessage],
    data: bytes,
    start: int,
    messages_max: int,
    origin: tuple[bytes, bytes, int, int],
    template: tuple[object, ...],
    /,
) -> int: ...
