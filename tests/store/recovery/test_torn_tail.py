"""Parts of recovery against slow and obvious versions of themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.recovery.torn_tail import nonzero_length

PIECES = st.tuples(
    st.sampled_from([b"\0", b"x", b"x\0"]), st.sampled_from([0, 1, 2047, 4095, 4096])
)


@given(st.lists(PIECES, max_size=6))
def test_what_is_kept_is_all_but_the_zeros_at_the_end(pieces: list[tuple[bytes, int]]) -> None:
    data = b"".join(piece * count for piece, count in pieces)

    assert nonzero_length(data) == len(data.rstrip(b"\0"))
