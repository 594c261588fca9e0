"""The pages keep to the code: links lead somewhere, files and classes exist, commands are taken."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from broker.cli.command_line import COMMANDS, dledger

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ("broker", "dledger", "simulator", "spark", "store", "tests")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:/[\w.]+)*/(?:[\w]+\.\w+)?")
SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)((?:    .*\n)+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}


def commands_of(page: Path) -> list[list[str]]:
    """The arguments of each ``dledger`` in the page's blocks, indented or fenced."""
    found = []
    text = page.read_text(encoding="utf-8")
    blocks = INDENTED.findall(FENCE.sub("", text)) + SHELL.findall(text)
    for line in "".join(blocks).splitlines():
        if not re.search(r"\bdledger [a-z]", line):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
        programs = (at for at, word in enumerate(words) if re.fullmatch("(.*/bin/)?dledger", word))
        for start in (at for at in programs if "".join(words[at + 1 : at + 2]).isalpha()):
            ends = [at for at, word in enumerate(words) if at > start and word[0] in "|&;<>"]
            found.append(words[start + 1 : ends[0] if ends else None])
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_on_the_pages_exist(page: Path) -> None:
    spans = SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    missing = [span for span in spans if FILE.fullmatch(span) and not (ROOT / span).exists()]
    assert not missing


def test_classes_of_the_glossary_exist() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\(`([A-Z]\w+)`", text))
    assert named
    code = (path.read_text(encoding="utf-8") for room in PACKAGES for path in list_modules(room))
    assert not named - {name for text in code for name in re.findall(r"^class (\w+)", text, re.M)}


def list_modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_on_the_pages_are_taken(page: Path) -> None:
    for words in commands_of(page):
        arguments = words
        command: click.Command | None = dledger
        while isinstance(command, click.Group):
            name, command, arguments = command.resolve_command(click.Context(command), arguments)
        assert command is not None
        command.make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_sentences_exist(page: Path) -> None:
    """With their options; arguments may be left out there, and ``create|alter`` names two."""
    for span in SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        program, *words = span.split()
        if program != "dledger" or (words and words[0] not in COMMANDS):
            continue
        command: click.Command = dledger
        while isinstance(command, click.Group) and words and words[0].islower():
            context, names = click.Context(command), words.pop(0).split("|")
            found = [command.resolve_command(context, [name])[1] for name in names]
            command = found[0] or command
        options = {name for each in command.params for name in each.opts + each.secondary_opts}
        named = {name for word in words for name in re.findall(r"^\[?(--[a-z-]+)", word)}
        assert named <= {*options, "--help"}, span


def test_the_readme_shows_commands() -> None:
    names = {name for name, *_ in commands_of(ROOT / "README.md")}
    assert {"topic", "produce", "consume", "kill", "member", "snapshot", "verify"} <= names
