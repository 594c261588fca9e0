"""The body of a configuration entry, which a peer may have made up."""

from __future__ import annotations

import pytest

from dledger.raft.configuration import Configuration, ConfigurationError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"version":1,"voters":"n0"}',
        b'{"version":1,"voters":[' + b"[" * 50_000,
    ],
    ids=lambda body: f"{body[:30]!r}, {len(body)} bytes",
)
def test_what_is_no_configuration_is_refused_in_a_few_words(body: bytes) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Configuration.unpack(body)
    assert len(str(caught.value)) < 300
