"""What is read from a route, and from a list of name servers."""

from __future__ import annotations

import pytest

from broker.client.route.topic_route import decode_route
from broker.remoting.protocol.addresses import parse_name_servers

BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",2:"10.0.0.3:10911"},"brokerName":"b",'
    b'"cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
    b'"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":2}]}'
)


@pytest.mark.parametrize("count", [b"-1", b"65537", b"2147483647", b"9223372036854775807"])
def test_a_route_with_more_queues_than_there_can_be_is_refused(count: bytes) -> None:
    with pytest.raises(ValueError, match=r"T has .* queues on b"):
        decode_route("T", BARE.replace(b'"writeQueueNums":2', b'"writeQueueNums":%b' % count))


def test_a_route_with_bare_keys_is_read() -> None:
    route = decode_route("T", BARE)
    assert route.brokers == {"b": {0: "10.0.0.1:10911", 2: "10.0.0.3:10911"}}
    assert [queue.queue_id for queue in route.write_queues] == [0, 1]
    assert [queue.queue_id for queue in route.read_queues] == [0]


@pytest.mark.parametrize(("perm", "writable", "readable"), [(6, 2, 1), (4, 0, 1), (2, 2, 0)])
def test_permissions_say_which_queues_there_are(perm: int, writable: int, readable: int) -> None:
    route = decode_route("T", BARE.replace(b'"perm":6', b'"perm":%d' % perm))
    assert (len(route.write_queues), len(route.read_queues)) == (writable, readable)


def test_name_servers_are_separated_by_semicolons() -> None:
    assert parse_name_servers("a:1; b:2;") == ["a:1", "b:2"]
