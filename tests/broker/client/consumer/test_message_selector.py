"""What a consumer may subscribe to."""

from __future__ import annotations

import pytest

from broker.client.consumer.message_selector import subscription
from broker.filter.subscription import ExpressionError
from broker.limits import BODY_LIMITS
from tests.broker.client.consumer.consumers import new_consumer
from tests.support.virtual_network import NetworkedLoop


@pytest.mark.parametrize(
    "tags", ["||", " ", "a" * (BODY_LIMITS.expression_size + 1)], ids=["bars", "blank", "long"]
)
async def test_tags_that_no_heartbeat_can_name_are_refused_at_once(
    loop: NetworkedLoop, tags: str
) -> None:
    with pytest.raises(ExpressionError):
        new_consumer(tags=tags)


def test_an_empty_expression_means_all_messages() -> None:
    assert subscription("T", "", 1).expression == "*"
