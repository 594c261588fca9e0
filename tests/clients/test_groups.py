"""Groups of consumers written by others, while members and leaders come and go."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.consumer_processes import Member, members
from tests.cluster.running_cluster import RunningCluster

QUEUES = list(range(6))


def produce(cluster: RunningCluster, topic: str, numbers: Sequence[int], *options: str) -> None:
    cluster.dledger("produce", topic, *options, stdin="".join(f"{n}\n" for n in numbers))


def shared(one: Member, two: Member) -> bool:
    """Whether each queue is one member's, and each member has as many."""
    return sorted(one.queues + two.queues) == QUEUES and len(one.queues) == len(two.queues)


def test_queues_are_shared_out_again_when_members_join_leave_or_die_and_leaders_change(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "letters", "--queues", str(len(QUEUES)))
    with members(cluster, "letters", "readers") as join:
        one = join()
        one.wait(lambda: one.queues == QUEUES, "a member that is alone has all queues")
        two = join()
        one.wait(lambda: shared(one, two), "each queue has one reader")

        old = cluster.leader()
        cluster.kill(old)
        produce(cluster, "letters", range(60))
        one.wait(
            lambda: {*one.numbers, *two.numbers} == set(range(60)),
            "all messages come after the leader was killed",
        )
        one.wait(lambda: shared(one, two), "the new leader knows both")

        two.leave()
        one.wait(lambda: one.queues == QUEUES, "who stays takes over from who left")
        three = join()
        one.wait(lambda: shared(one, three), "a third joins")
        three.kill()
        one.wait(lambda: one.queues == QUEUES, "who lives takes over from who died")
        cluster.start(old)
        produce(cluster, "letters", range(60, 90))
        one.wait(lambda: set(one.numbers) >= set(range(60, 90)), "it gets all that comes now")
        one.leave()


def has_all(member: Member, messages: int) -> None:
    """Returns when it reads two queues, and so many messages have come."""
    member.wait(lambda: member.queues == [0, 1] and len(member.got) == messages, "all there is")


def test_each_member_of_a_broadcasting_group_gets_everything(
    shared_cluster: RunningCluster,
) -> None:
    shared_cluster.dledger("topic", "create", "news", "--queues", "2")
    with members(shared_cluster, "news", "listeners") as join:
        both = [join(broadcast=True), join(broadcast=True)]
        for member in both:
            has_all(member, 0)
        produce(shared_cluster, "news", range(20))
        for member in both:
            has_all(member, 20)
            assert sorted(member.numbers) == list(range(20))
            member.leave()


def test_a_tag_expression_selects_messages_on_the_broker(shared_cluster: RunningCluster) -> None:
    shared_cluster.dledger("topic", "create", "tagged", "--queues", "1")
    for first, tag in enumerate("ABC"):
        produce(shared_cluster, "tagged", range(first, 9, 3), "--tag", tag)
    with members(shared_cluster, "tagged", "pickers") as join:
        member = join(filter="A || C")
        member.wait(lambda: len(member.got) == 6, "the messages of two tags")
        assert sorted(member.numbers) == [0, 2, 3, 5, 6, 8]
        member.leave()


def test_an_sql_expression_selects_messages_on_the_broker(shared_cluster: RunningCluster) -> None:
    shared_cluster.dledger("topic", "create", "described", "--queues", "1")
    for n in range(6):
        produce(shared_cluster, "described", [n], "--key", str(n))
    with members(shared_cluster, "described", "searchers") as join:
        wanted = {"expressionType": "SQL92", "subString": "KEYS BETWEEN 1 AND 3 OR KEYS = '5'"}
        member = join(filter=wanted)
        member.wait(lambda: len(member.got) == 4, "the messages that the expression selects")
        assert member.numbers == [1, 2, 3, 5]
        member.leave()


def test_a_client_that_knows_nothing_of_resets_is_moved_all_the_same(
    shared_cluster: RunningCluster,
) -> None:
    shared_cluster.dledger("topic", "create", "repeated", "--queues", "1")
    produce(shared_cluster, "repeated", range(5))
    with members(shared_cluster, "repeated", "learners") as join:
        member = join()
        member.wait(lambda: len(member.got) == 5, "all messages")
        reset = shared_cluster.ask(
            "group", "reset-offset", "learners", "--topic", "repeated", "--to", "earliest"
        )
        assert [queue["offset"] for queue in reset["queues"]] == [0]
        member.wait(lambda: len(member.got) == 10, "all messages once more")
        assert member.numbers == [*range(5), *range(5)]
        member.leave()
