"""Slot files, checkpoints, the format file: round trips, and garbage."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.engine.disk import PowerLossError
from simulator.engine.disk_faults import Fault
from store.errors import DamagedError, DataFormatError
from store.io.atomic_file import read_file, replace_file
from store.io.two_slot_file import (
    PAYLOAD_SIZE_MAX,
    SLOT_SIZE,
    TwoSlotFile,
    decode_slot,
    encode_slot,
)
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.state.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from store.state.format_file import Identity, check_identity, decode_format, encode_format
from store.state.hard_state import DurableMark, HardState
from tests.store.small_logs import simulated

i64 = st.integers(-(2**63), 2**63 - 1)


@given(sequence=st.integers(0, 2**64 - 1), payload=st.binary(max_size=PAYLOAD_SIZE_MAX))
def test_a_slot_decodes_to_what_was_encoded(sequence: int, payload: bytes) -> None:
    slot = encode_slot(sequence, payload)
    assert len(slot) == SLOT_SIZE
    assert decode_slot(slot) == (sequence, payload)


def test_a_payload_larger_than_a_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="exceeds 492"):
        encode_slot(1, bytes(PAYLOAD_SIZE_MAX + 1))


@given(bit=st.integers(0, (20 + 30) * 8 - 1))
def test_no_flipped_bit_in_a_slot_goes_unnoticed(bit: int) -> None:
    data = bytearray(encode_slot(3, b"x" * 30))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_slot(bytes(data)) is None


@given(st.binary(max_size=600))
def test_garbage_is_no_slot(garbage: bytes) -> None:
    assert decode_slot(garbage) is None


def test_a_slot_file_opens_at_its_last_save() -> None:
    fs = simulated()
    slots = TwoSlotFile.create(fs, "/", "vote", b"first")
    for payload in (b"second", b"third"):
        slots.save(payload)
    fs.power_loss(keep=0.0)
    assert TwoSlotFile.open(fs, "/vote").payload == b"third"


def test_a_power_loss_at_any_call_of_a_save_leaves_the_old_record_or_the_new() -> None:
    for sector_size in (16, 512):
        for call in range(1, 5):
            for seed in range(40):
                fs = simulated(seed, sector_size=sector_size)
                slots = TwoSlotFile.create(fs, "/", "vote", b"old record" * 8)
                slots.save(b"OLD RECORD" * 8)
                fs.lose_power_at(call)
                with pytest.raises(BaseException, match="/vote"):
                    slots.save(b"new record" * 8)
                fs.power_loss()
                assert TwoSlotFile.open(fs, "/vote").payload in {
                    b"OLD RECORD" * 8,
                    b"new record" * 8,
                }


def test_a_record_read_after_a_failed_save_is_there_for_good() -> None:
    for call in range(1, 5):
        for seed in range(20):
            fs = simulated(seed)
            slots = TwoSlotFile.create(fs, "/", "vote", b"old")
            fs.inject(Fault(call, errno.EIO))
            with pytest.raises(OSError, match="Input/output"):
                slots.save(b"new")
            fs.crash()
            seen = TwoSlotFile.open(fs, "/vote").payload
            fs.power_loss(keep=0.0)
            assert TwoSlotFile.open(fs, "/vote").payload == seen


def test_power_loss_while_a_failed_save_is_repaired_leaves_a_whole_record() -> None:
    for failed in (1, 2):
        for call in range(1, 5):
            for seed in range(60):
                fs = simulated(seed, sector_size=16)
                slots = TwoSlotFile.create(fs, "/", "vote", b"old record" * 8)
                fs.inject(Fault(failed, errno.EIO))
                with pytest.raises(OSError, match="Input/output"):
                    slots.save(b"new record" * 8)
                fs.crash()
                fs.lose_power_at(call)
                with contextlib.suppress(PowerLossError):
                    TwoSlotFile.open(fs, "/vote")
                fs.power_loss()
                assert TwoSlotFile.open(fs, "/vote").payload in {
                    b"old record" * 8,
                    b"new record" * 8,
                }


def test_a_save_torn_after_one_that_failed_leaves_what_was_read_between_them() -> None:
    for failed in range(1, 5):
        for call in range(1, 5):
            for seed in range(60):
                fs = simulated(seed, sector_size=16)
                slots = TwoSlotFile.create(fs, "/", "vote", b"first one." * 8)
                fs.inject(Fault(failed, errno.EIO))
                with pytest.raises(OSError, match="Input/output"):
                    slots.save(b"second one" * 8)
                fs.crash()
                slots = TwoSlotFile.open(fs, "/vote")
                seen = slots.payload
                fs.lose_power_at(call)
                with contextlib.suppress(PowerLossError):
                    slots.save(b"third one." * 8)
                fs.power_loss()
                assert TwoSlotFile.open(fs, "/vote").payload in {seen, b"third one." * 8}


def test_a_save_over_a_block_that_cannot_be_read_leaves_two_whole_slots_or_the_old_file() -> None:
    saves = 0
    for call in range(1, 9):
        for seed in range(20):
            fs = simulated(seed)
            slots = TwoSlotFile.create(fs, "/", "vote", b"old")
            fs.lose_sector("/vote", 0)
            fs.lose_power_at(call)
            with contextlib.suppress(PowerLossError):
                slots.save(b"new")
                saves += 1
            fs.power_loss()
            try:
                data = read_file(fs, "/vote")
            except OSError:
                continue  # the old file, as it was
            assert [decode_slot(data[:SLOT_SIZE]), decode_slot(data[SLOT_SIZE:])] == [
                (2, b"new")
            ] * 2
    assert saves


@given(term=i64, vote=st.text(max_size=100))
def test_a_hard_state_is_unpacked_as_packed(term: int, vote: str) -> None:
    assert HardState.unpack(HardState(term, vote).pack(), "vote") == HardState(term, vote)


@given(st.tuples(i64, i64, i64, i64, i64, i64))
def test_a_mark_is_unpacked_as_packed(fields: tuple[int, int, int, int, int, int]) -> None:
    assert DurableMark.unpack(DurableMark(*fields).pack(), "mark") == DurableMark(*fields)


@given(st.binary(max_size=40))
def test_a_record_of_other_fields_is_damage(garbage: bytes) -> None:
    assume(garbage[:1] != b"\x92")  # the head of an array of two
    with pytest.raises(DamagedError, match="vote"):
        HardState.unpack(garbage, "vote")


checkpoints = st.builds(
    Checkpoint,
    index=st.integers(0, 2**63 - 1),
    end_position=st.integers(0, 2**63 - 1),
    chain_crc=st.integers(0, 2**32 - 1),
    term=st.integers(0, 2**63 - 1),
    term_starts=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=5).map(tuple),
    commit_index=st.integers(0, 2**63 - 1),
    state=st.binary(max_size=300),
)


@given(checkpoints)
def test_a_checkpoint_decodes_to_what_was_encoded(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint), "path") == checkpoint


@given(checkpoint=checkpoints, data=st.data())
def test_no_flipped_bit_in_a_checkpoint_goes_unnoticed(
    checkpoint: Checkpoint, data: st.DataObject
) -> None:
    encoded = bytearray(encode_checkpoint(checkpoint))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedError):
        decode_checkpoint(bytes(encoded), "path")


@given(st.binary(max_size=100))
def test_garbage_is_no_checkpoint(garbage: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_checkpoint(garbage, "path")


def test_a_format_file_tells_whose_data_it_is() -> None:
    identity = Identity("broker-a", "n0", 1 << 20)
    assert decode_format(encode_format(identity), "format") == identity


@given(bit=st.integers(0, len(encode_format(Identity("g", "n", 1024))) * 8 - 1))
def test_no_flipped_bit_in_a_format_file_goes_unnoticed(bit: int) -> None:
    data = bytearray(encode_format(Identity("g", "n", 1024)))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises((DamagedError, DataFormatError)):
        decode_format(bytes(data), "format")


@pytest.mark.parametrize("size", [0, 1, SEGMENT_SIZE_MIN - 1, SEGMENT_SIZE_MAX + 1])
def test_a_segment_size_that_no_log_has_is_damage(size: int) -> None:
    with pytest.raises(DamagedError, match="impossible line"):
        decode_format(encode_format(Identity("g", "n", size)), "format")


def test_a_name_of_two_lines_cannot_be_written_to_a_format_file() -> None:
    with pytest.raises(ValueError, match="group must be one line"):
        encode_format(Identity("broker\na", "n0", 1024))


def test_agreeing_identities_pass() -> None:
    identity = Identity("g", "n", 1024)
    check_identity(identity, identity, "format")


def test_replacing_a_file_leaves_the_old_or_the_new_at_any_power_loss() -> None:
    for call in range(1, 7):
        for seed in range(30):
            fs = simulated(seed)
            replace_file(fs, "/", "a", b"old" * 500)
            fs.lose_power_at(call)
            with pytest.raises(BaseException, match="/"):
                replace_file(fs, "/", "a", b"new" * 700)
            fs.power_loss()
            assert read_file(fs, "/a") in {b"old" * 500, b"new" * 700}


def test_a_replaced_file_is_durable_at_once() -> None:
    fs = simulated()
    replace_file(fs, "/", "a", b"old")
    replace_file(fs, "/", "a", b"new")
    fs.power_loss(keep=0.0)
    assert read_file(fs, "/a") == b"new"
