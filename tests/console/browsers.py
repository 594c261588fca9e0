"""A browser for the tests, and what they do with a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

T = TypeVar("T")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "DLEDGER_BROWSER"
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)
WAIT_MS = 20_000
NOT_ANSWERED = ("Failed to load resource", "htmx:sendError", "htmx:afterRequest")
"""What is told of a node that does not answer."""

AXE = Path(__file__).parents[1] / "clients/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")

PHONE = (390, 844)


def in_a_thread(work: Callable[[], T]) -> T:
    """Its result. Playwright runs an event loop in the thread of the tests, where no other may."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def browser_path() -> str:
    """The program. Skips the test, with the reason, where there is none."""
    path = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"there is no Chromium here; `make browser` installs one, or set ${VARIABLE}")
    return path


def launched(playwright: Playwright) -> Browser:
    """A browser that keeps nothing."""
    return playwright.chromium.launch(executable_path=browser_path(), args=list(ARGUMENTS))


def complaints(page: Page) -> list[str]:
    """Gets what the browser complains of from now on: errors of scripts, and what the policy of the
    page forbids. That an answer is no success is no complaint."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(NOT_ANSWERED):
            found.append(message.text)

    page.on("console", heard)
    return found


def axe_findings(page: Page) -> list[str]:
    """What axe-core finds that is serious or worse."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed; `make clients` installs it")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    assert found["passes"], "axe looked at nothing"
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


def asked(page: Page) -> str:
    """The question of the dialog, once it shows the command."""
    page.locator("#dialog pre.command").wait_for()
    return page.locator("#dialog-title").inner_text()


def confirm(page: Page, verb: str) -> str:
    """Answers the question with yes; what is done."""
    page.locator("#dialog").get_by_role("button", name=verb, exact=True).click()
    told = page.locator("#dialog-content .notice")
    told.wait_for()
    text = told.inner_text()
    assert "good" in (told.get_attribute("class") or ""), text
    return text
