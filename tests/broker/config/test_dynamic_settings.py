"""Settings that an operator changes while the broker runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.config.config_file import NODE
from broker.config.dynamic_settings import CHANGEABLE
from broker.config.run_time_names import RUN_TIME_NAMES
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.broker_state import BrokerState
from store.log.retention_policy import HOUR_MS
from tests.broker.single_broker import SingleBroker, running_broker, send_ext
from tests.support.virtual_network import NetworkedLoop


async def change(broker: SingleBroker, text: str) -> Frame:
    return await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())


async def settings_of(broker: SingleBroker) -> dict[str, str]:
    answer = await broker.ask(RequestCode.GET_BROKER_CONFIG)
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


async def send_to_unknown(broker: SingleBroker, topic: str) -> int:
    answer = await broker.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, 0), b"x")
    return answer.code


async def test_topics_are_no_longer_created_by_sending_to_them(broker: SingleBroker) -> None:
    assert await send_to_unknown(broker, "one") == ResponseCode.SUCCESS
    assert (await change(broker, "autoCreateTopicEnable=FALSE")).code == ResponseCode.SUCCESS
    assert await send_to_unknown(broker, "two") == ResponseCode.TOPIC_NOT_EXIST
    assert (await settings_of(broker))["autoCreateTopicEnable"] == "false"
    await change(broker, "autoCreateTopicEnable=true")
    assert await send_to_unknown(broker, "two") == ResponseCode.SUCCESS


async def test_several_settings_are_changed_at_once(broker: SingleBroker) -> None:
    text = "# by hand\n\nslaveReadEnable = false\r\nenablePropertyFilter=false\n"
    assert (await change(broker, text)).code == ResponseCode.SUCCESS
    told = await settings_of(broker)
    assert (told["slaveReadEnable"], told["enablePropertyFilter"]) == ("false", "false")
    await broker.create_topic("orders")
    sql = {"expressionType": "SQL92", "subscription": "a = 1"}
    assert (await broker.pull("orders", 0, 0, **sql)).code == ResponseCode.SYSTEM_ERROR


async def test_the_level_of_the_log_changes_on_the_node_and_holds_after_a_restart(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    levels: list[str] = []

    async with running_broker(loop, tmp_path, set_log_level=levels.append) as broker:
        assert (await settings_of(broker))["logLevel"] == "info"
        assert levels == []
        assert (await change(broker, "logLevel=DEBUG")).code == ResponseCode.SUCCESS
        assert levels == ["debug"]
        assert (await settings_of(broker))["logLevel"] == "debug"
        answer = await change(broker, "logLevel=loud")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "debug or info or warning or error" in (answer.remark or "")

    levels.clear()
    async with running_broker(loop, tmp_path, set_log_level=levels.append):
        assert levels[-1] == "debug"


async def test_how_long_messages_are_kept_changes_at_once(broker: SingleBroker) -> None:
    settings = broker.broker.context.settings
    assert settings.reserved_ms(7) == 7
    await change(broker, "fileReservedTime=5")
    assert settings.reserved_ms(7) == 5 * HOUR_MS
    await change(broker, "fileReservedTime=0")
    assert settings.reserved_ms(7) is None


async def test_the_file_that_is_read_again_counts_until_a_command_says_otherwise(
    broker: SingleBroker,
) -> None:
    context = broker.broker.context
    context.settings.config = replace(
        context.config, file_reserved_hours=3, auto_create_topics=False, reads="stale"
    )
    assert context.settings.reserved_ms(7) == 3 * HOUR_MS
    assert not context.settings.auto_create_topics
    assert context.config.reads == "stale"
    await change(broker, "fileReservedTime=5")
    assert context.settings.reserved_ms(7) == 5 * HOUR_MS


async def test_what_was_changed_goes_before_the_file_after_a_restart(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, auto_create_topics=False) as broker:
        assert (await change(broker, "autoCreateTopicEnable=true")).code == ResponseCode.SUCCESS
    async with running_broker(loop, tmp_path, auto_create_topics=False) as broker:
        assert (await settings_of(broker))["autoCreateTopicEnable"] == "true"


def test_a_checkpoint_holds_what_was_changed() -> None:
    state = BrokerState(settings={"slaveReadEnable": "false", "fileReservedTime": "1"})
    assert BrokerState.from_bytes(state.to_bytes()) == state


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("", "the body changes nothing"),
        ("flushDiskType=ASYNC_FLUSH", "flushDiskType cannot be changed while the broker runs"),
        ("fileReservedTim=3", "did you mean fileReservedTime?"),
        (f"{'x' * 50_000}=3", "'xxx"),
        ("autoCreateTopicEnable", "'autoCreateTopicEnable' is not name=value"),
        ("autoCreateTopicEnable=maybe", "is true or false, not 'maybe'"),
        ("fileReservedTime=-1", "a number of hours from 0 to 1000000, not '-1'"),
        ("fileReservedTime=1000001", "a number of hours"),
        (f"fileReservedTime={'9' * 5000}", "a number of hours"),
        ("slaveReadEnable=false\nbrokerId=7", "brokerId cannot be changed"),
    ],
)
async def test_a_change_that_cannot_be_made_changes_nothing(
    broker: SingleBroker, text: str, remark: str
) -> None:
    before = await settings_of(broker)
    answer = await change(broker, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert remark in (answer.remark or "")
    assert await settings_of(broker) == before


async def test_each_name_at_run_time_is_of_a_setting_of_the_file_and_answered(
    broker: SingleBroker,
) -> None:
    assert RUN_TIME_NAMES.keys() <= {one.key for one in NODE.settings}
    assert set(RUN_TIME_NAMES.values()) <= (await settings_of(broker)).keys()
    assert set(CHANGEABLE) <= set(RUN_TIME_NAMES.values())


async def test_a_node_that_does_not_lead_changes_nothing(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        answer = await change(broker, "slaveReadEnable=false")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
