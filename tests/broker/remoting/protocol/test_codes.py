"""Response codes are for programs: people are told words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import broker
from broker.client.errors import refusal
from broker.cluster_admin.admin_client import RefusedError as CommandRefusedError
from broker.remoting.protocol.codes import RESPONSE_WORDS, ResponseCode, refusal_words


def test_every_response_code_has_words_of_its_own() -> None:
    assert RESPONSE_WORDS.keys() == set(ResponseCode)
    assert len(set(RESPONSE_WORDS.values())) == len(ResponseCode)
    assert not [words for words in RESPONSE_WORDS.values() if any(map(str.isdigit, words))]


@pytest.mark.parametrize("code", ResponseCode)
def test_a_refusal_is_told_without_the_number(code: ResponseCode) -> None:
    # A remark of that code says itself what is not available.
    bare = code is ResponseCode.SERVICE_NOT_AVAILABLE
    words = "why" if bare else f"why ({RESPONSE_WORDS[code]})"
    for error in (CommandRefusedError("host", code, "why"), refusal("host", code, "why")):
        assert str(error) == f"host refused: {words}"
    assert refusal_words(code, None) == refusal_words(code, "") == RESPONSE_WORDS[code]


def test_a_code_that_nobody_knows_is_told_by_its_number() -> None:
    words = "why (a reason that this version does not know, number 2013)"
    assert refusal_words(2013, "why") == words


def formatted_codes(path: Path) -> list[str]:
    """Where text for people is made of an attribute or a name ``code``."""
    return [
        f"{path.name}:{part.lineno}"
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.FormattedValue)
        and ast.unparse(part.value).rpartition(".")[2].strip("()") == "code"
    ]


def test_no_command_and_no_client_makes_text_of_a_response_code() -> None:
    root = Path(broker.__path__[0])
    paths = [path for room in ("cli", "client", "bench") for path in root.glob(f"{room}/**/*.py")]
    found = [place for path in paths for place in formatted_codes(path)]
    assert [
        place for place in found if not place.startswith("managed_processes.py")
    ] == []  # exit codes
