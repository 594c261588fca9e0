"""Which links are steady."""

from __future__ import annotations

import asyncio

from dledger.node import peer_links
from dledger.node.peer_links import PeerLinks
from tests.support.virtual_network import NetworkedLoop


async def test_a_link_is_steady_while_it_is_up_and_has_not_broken_lately(
    loop: NetworkedLoop,
) -> None:
    links = PeerLinks(loop)
    assert not links.is_steady("b", 5)
    links.connected("b")
    assert links.is_steady("b", 5)
    links.lost("b")
    assert not links.is_steady("b", 0)
    links.connected("b")
    await asyncio.sleep(4)
    assert (links.is_steady("b", 5), links.is_steady("b", 3)) == (False, True)
    await asyncio.sleep(1)
    assert links.is_steady("b", 5)


async def test_strangers_that_come_and_go_fill_no_memory(loop: NetworkedLoop) -> None:
    links = PeerLinks(loop)
    for number in range(3 * peer_links.BROKEN_MAX):
        links.connected(f"stranger-{number}")
        links.lost(f"stranger-{number}")
    assert len(links._broken) == peer_links.BROKEN_MAX
    assert not links._up
