"""A browser for the tests, and helpers for a page."""

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
VARIABLE = "DLEDGER_TEST_BROWSER"
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
"""The text about a node that does not answer."""

AXE = Path(__file__).parents[1] / "clients/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")

PHONE = (390, 844)


def in_a_thread(work: Callable[[], T]) -> T:
    """The result of ``work``. Playwright runs an event loop in the thread of the tests, so ours
    needs another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def browser_path() -> str:
    """The path of the browser. Skips the test, with the reason, if there is none."""
    path = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"there is no Chromium here; `make browser` installs one, or set ${VARIABLE}")
    return path


def launched(playwright: Playwright) -> Browser:
    """A browser without a profile on the disk."""
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
    """Findings of axe-core that are serious or worse."""
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
    """The text of the dialog, once it shows the command."""
    page.locator("#dialog pre.command").wait_for()
    return page.locator("#dialog-title").inner_text()


def confirm(page: Page, verb: str) -> str:
    """Confirms the dialog. Returns the text about what is done."""
    page.locator("#dialog").get_by_role("button", name=verb, exact=True).click()
    told = page.locator("#dialog-content .notice")
    told.wait_for()
    text = told.inner_text()
    assert "good" in (told.get_attribute("class") or ""), text
    return text
