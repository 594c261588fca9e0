"""Each of these defences is needed: the test that is told of it fails where it is taken out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from dledger.raft.messages import AppendAccepted, Heartbeat
from simulator.bugs.planted_bug import Patch
from store.recovery.opening import StoreConfig
from tests.defences import consensus, disk
from tests.dledger.node import (
    test_checked_reads,
    test_health_monitor,
    test_linearizable_reads,
    test_log_divergence,
    test_log_writer,
    test_lost_last_entry,
    test_snapshot_peers,
)
from tests.dledger.node.member import Member, leading
from tests.dledger.raft import test_lease, test_refusals, test_strangers
from tests.dledger.raft.scenario import SCENARIOS, play
from tests.store import (
    test_failed_writes,
    test_marks_and_checkpoints,
    test_replica,
    test_truncation,
)
from tests.store.log import test_entry_reader, test_entry_repair
from tests.store.recovery import test_log_damage, test_snapshot_install
from tests.support.virtual_network import NetworkedLoop, run_in_virtual_time

pytestmark = pytest.mark.minutes

Plant = Callable[[Patch], None]


def scenario(name: str) -> Callable[[], None]:
    """A story of cores, which must go as its file says."""

    def told() -> None:
        text = (SCENARIOS / f"{name}.txt").read_text()
        assert play(text) == text

    return told


def led(test: Callable[[Member], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test of a node that leads."""

    async def told(loop: NetworkedLoop) -> None:
        async with leading(loop) as member:
            await test(member)

    return partial(run_in_virtual_time, told)


def far_term() -> None:
    """A term that nobody can have reached."""
    test_strangers.test_no_term_is_adopted_that_is_far_from_what_is_known(
        "n1", 1 << 62, lambda term: Heartbeat(term, -1)
    )


IN_A_CORE: dict[Plant, Callable[[], object]] = {
    consensus.every_peer_taken_for_a_member: partial(
        test_strangers.test_a_stranger_does_not_lead_where_a_member_does, 1
    ),
    consensus.stranger_heard_at_any_time: (
        test_strangers.test_a_stranger_is_heard_where_no_member_has_led_for_long
    ),
    consensus.stranger_heard_again_and_again: (
        test_strangers.test_a_stranger_keeps_no_member_from_an_election
    ),
    consensus.stranger_breaks_off_an_election: (
        test_strangers.test_a_stranger_that_was_voted_for_breaks_off_no_election
    ),
    consensus.stranger_asks_for_votes_like_a_member: (
        test_strangers.test_a_stranger_whose_log_is_no_longer_gets_no_vote_and_raises_no_term
    ),
    consensus.stranger_believed_of_what_is_committed: (
        test_strangers.test_a_stranger_that_does_not_know_the_log_is_not_believed
    ),
    consensus.anybody_believed_of_what_disks_hold: (
        test_strangers.test_what_members_hold_is_believed_of_who_knows_the_log
    ),
    consensus.disks_of_nobody_remembered: (
        test_strangers.test_what_members_hold_is_believed_of_who_knows_the_log
    ),
    consensus.everybody_is_served: partial(
        test_strangers.test_a_stranger_does_not_lead_where_a_member_does, 1
    ),
    consensus.refilled_from_whoever_leads: (
        test_snapshot_peers.test_a_stranger_that_leads_is_asked_for_no_log
    ),
    consensus.any_term_is_near: far_term,
    consensus.terms_approached_at_once: (
        test_strangers.test_a_member_that_raises_the_term_again_and_again_gets_nowhere
    ),
    consensus.second_leader_of_a_term_followed: (
        test_strangers.test_the_same_term_as_the_leader_is_told_to_be_a_lie
    ),
    consensus.what_a_stranger_sent_counts_for_a_member: (
        test_strangers.test_a_member_takes_the_place_of_a_stranger_that_seemed_to_lead
    ),
    consensus.entries_taken_from_anywhere: test_refusals.test_entries_out_of_place_are_refused,
    consensus.committed_entries_not_compared: (
        test_refusals.test_a_leader_with_another_term_at_a_committed_index_is_refused
    ),
    consensus.what_cannot_be_confirmed_counts: partial(
        test_refusals.test_entries_that_do_not_exist_cannot_be_confirmed, AppendAccepted(1, 5)
    ),
    consensus.late_order_to_campaign_obeyed: scenario("a11_late_order_to_campaign"),
    consensus.votes_of_any_term_counted: scenario("elections_old_votes_do_not_count"),
    consensus.whoever_is_no_voter_by_the_newest_entry_never_leads: scenario(
        "a8_removed_leader_with_the_longest_log_leads_again"
    ),
    consensus.stuck_change_never_called_off: scenario(
        "membership_change_that_cannot_complete_is_cancelled"
    ),
    consensus.members_changed_whoever_is_up: scenario(
        "c11_voter_that_does_not_know_that_its_disk_counts_is_not_ready"
    ),
    consensus.damaged_members_relied_on: scenario("voter_with_damaged_entries_is_not_ready"),
    consensus.new_disk_counts_at_once: scenario(
        "c11_wiped_voter_counts_for_nothing_until_refilled"
    ),
    consensus.those_who_leave_are_not_told: scenario("a8_removed_follower_learns_it_from_the_log"),
    consensus.handed_over_before_all_is_there: scenario("a11_transfer_waits_for_the_target"),
    consensus.proposals_taken_during_a_handover: scenario("a11_transfer_waits_for_the_target"),
    consensus.check_quorum_put_off_by_each_late_tick: scenario(
        "a7_late_ticks_of_a_leader_that_hears_nobody"
    ),
    consensus.late_read_joins_a_round_under_way: scenario("reads_one_round_confirms_many"),
    consensus.lease_from_the_answer_on: test_lease.test_a_lease_begins_when_its_round_was_sent,
    consensus.lease_kept_after_an_order: scenario("reads_no_lease_after_an_order"),
    consensus.voter_campaigns_within_a_lease: scenario("reads_lease_counts_for_the_voter_itself"),
}

IN_A_NODE: dict[Plant, Callable[[], object]] = {
    consensus.stalled_disk_not_noticed: led(
        test_health_monitor.test_a_leader_whose_disk_ends_no_write_gives_way_to_one_that_reported_healthy
    ),
    consensus.unhealthy_leader_stays: led(
        test_health_monitor.test_a_leader_whose_disk_ends_no_write_gives_way_to_one_that_reported_healthy
    ),
    consensus.damaged_member_campaigns: led(
        test_health_monitor.test_a_damaged_node_campaigns_only_where_all_others_are_damaged_too
    ),
    consensus.member_without_room_is_as_quick_as_others: led(
        test_health_monitor.test_a_leader_without_room_gives_way_and_waits_longer_than_others_to_campaign
    ),
    consensus.divergence_not_noticed: (
        test_log_divergence.test_a_log_that_another_member_contradicts_too_is_refilled
    ),
    consensus.divergence_believed_of_the_leader_alone: (
        test_log_divergence.test_a_log_that_another_member_shares_stays_as_it_is
    ),
    consensus.numbers_of_questions_used_again: partial(
        run_in_virtual_time,
        test_linearizable_reads.test_an_answer_to_an_earlier_process_answers_no_question,
    ),
    disk.what_was_cut_counts_as_synced: (
        test_log_writer.test_what_was_synced_and_then_replaced_is_not_synced
    ),
    disk.what_is_not_committed_given_to_peers: (
        test_snapshot_peers.test_what_is_not_known_to_be_committed_is_given_to_nobody
    ),
    disk.lost_last_entry_tells_nothing: (
        test_lost_last_entry.test_what_was_overwritten_together_with_the_last_known_entry_is_missed
    ),
    disk.rows_not_checked: partial(
        test_entry_reader.test_rows_that_rotted_hide_no_entry_and_lead_to_no_other, 9, 6
    ),
    disk.wrong_rows_given_up: partial(
        test_checked_reads.test_a_wrong_row_keeps_nobody_from_an_entry_and_is_repaired, 12, 4
    ),
}

IN_A_STORE: dict[Plant, Callable[[], object]] = {
    disk.term_may_fall: test_replica.test_a_term_cannot_fall,
    disk.entries_of_a_term_that_is_not_saved: (
        test_replica.test_an_entry_that_does_not_follow_is_refused_and_nothing_of_its_batch_is_kept
    ),
    disk.failed_store_goes_on: (
        test_failed_writes.test_after_a_failed_sync_the_store_refuses_everything_that_writes
    ),
    disk.mark_set_on_what_is_not_there: (
        test_marks_and_checkpoints.test_a_mark_on_an_entry_that_was_replaced_meanwhile_is_not_saved
    ),
    disk.committed_entries_cut: test_truncation.test_committed_entries_cannot_be_truncated,
    disk.checkpoint_of_what_is_not_durable: (
        test_marks_and_checkpoints.test_a_checkpoint_waits_until_the_log_is_durable_up_to_it
    ),
    disk.one_checkpoint_kept: test_marks_and_checkpoints.test_the_newest_two_checkpoints_are_kept,
    disk.mark_not_compared_with_the_log: (
        test_log_damage.test_a_whole_log_of_another_history_is_damage
    ),
    disk.padding_not_looked_at: test_entry_repair.test_damaged_padding_is_found_and_written_again,
    disk.putback_not_finished: partial(
        test_entry_repair.test_an_entry_that_reads_as_whole_after_a_failure_is_durable, None
    ),
    disk.refill_begun_for_a_term_to_come: (
        test_snapshot_install.test_a_checkpoint_of_a_term_that_nobody_leads_yet_is_refused
    ),
    disk.refill_not_tied_together: (
        test_snapshot_install.test_entries_that_do_not_lead_to_the_checkpoint_are_refused
    ),
    disk.refill_complete_before_its_entries_are_durable: (
        test_snapshot_install.test_a_crash_or_power_loss_at_any_call_leaves_the_old_log_or_the_new_one
    ),
    disk.refill_does_not_raise_the_term: (
        test_snapshot_install.test_a_complete_refill_takes_the_place_of_the_log_when_the_replica_is_opened
    ),
    disk.refill_forgotten_before_it_is_installed: (
        test_snapshot_install.test_a_crash_or_power_loss_at_any_call_leaves_the_old_log_or_the_new_one
    ),
    disk.refill_leaves_what_was_derived: (
        test_snapshot_install.test_a_complete_refill_takes_the_place_of_the_log_when_the_replica_is_opened
    ),
    disk.data_of_another_node_opened: partial(
        test_replica.test_data_of_another_node_is_refused_saying_what_differs,
        StoreConfig("broker-b", "n0", segment_size=400),
        "group is broker-a",
    ),
    disk.refill_without_a_floor: (
        test_snapshot_install.test_a_replica_that_held_more_than_the_refill_has_a_floor_until_it_holds_it_again
    ),
}

TOLD = {**IN_A_CORE, **IN_A_NODE, **IN_A_STORE}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("without", "test"), TOLD.items(), ids=[without.__name__ for without in TOLD]
)
def test_without_a_defence_its_test_fails(without: Plant, test: Callable[[], object]) -> None:
    patch = Patch()
    without(patch)
    try:
        with pytest.raises((Exception, pytest.fail.Exception)) as caught:
            test()
    finally:
        patch.undo()
    assert not caught.errisinstance((TypeError, AttributeError, NameError)), "it cannot be planted"
    del caught
    gc.collect()  # a test that fails leaves its loop open


def test_every_defence_that_can_be_taken_out_is_told_a_test() -> None:
    plants = [
        plant
        for module in (consensus, disk)
        for plant in vars(module).values()
        if callable(plant) and getattr(plant, "__module__", "") == module.__name__
    ]
    assert [plant.__name__ for plant in plants if plant not in TOLD] == []
