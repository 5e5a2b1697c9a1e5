"""Headless Chromium and rendered pages. Without Chromium every test here skips and says so."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reckoning.report import render
from tests.unit.report import specimen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STATES = {
    "whole": {"telemetry": True, "arms": [*list(specimen.ARMS)[:9], "ep8-dflash"], "levels": (1, 32, 256)},
    "cpu": {"arms": ["tp8-eager", "ep8", "ep4"], "levels": (1, 4), "blocks": 3, "kind": "cpu-demonstration"},
    "one-of-many": {"ran": ["ep4"], "levels": (1, 32)},
    "one-block": {"arms": ["tp8-eager", "ep8"], "levels": (1, 32), "blocks": 1},
    "all-failed": {"ran": [], "log_excerpt": "</script><img src=x onerror=alert(1)>"},
    "hostile": {
        "arms": ["tp8-eager", "ep8", "ep4"],
        "levels": (1, 32),
        "labels": {"ep8": specimen.HOSTILE, "ep4": '"><svg onload=alert(1)>', "tp8-eager": "=1+1|" + "w" * 90},
    },
}


@pytest.fixture(scope="session")
def page_of(tmp_path_factory) -> Callable[[str], Path]:
    """Return the rendered page of a named state; each is rendered once."""
    made: dict[str, Path] = {}

    def render_once(state: str) -> Path:
        if state not in made:
            folder = tmp_path_factory.mktemp(state)
            specimen.write(folder / "results", **STATES[state])
            render(folder / "results", folder / "report" / "findings.html")
            made[state] = folder / "report" / "findings.html"
        return made[state]

    return render_once


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """Yield a running browser. Not for the whole session: its event loop would forbid other tests one of their own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install the system package `chromium`")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, page_of) -> Iterator[Callable]:
    """Return a function that opens a state and collects in `page.faults` whatever goes wrong or leaves the page."""
    contexts = []

    def opened(state: str, *, width: int = 1400, dark: bool = False, reader: bool = True):
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=reader,
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("console", lambda message: page.faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request", lambda request: page.faults.append(f"request: {request.url}") if _leaves(request.url) else None
        )
        page.goto(page_of(state).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def _leaves(url: str) -> bool:
    return not url.startswith(("data:", "blob:")) and not url.endswith("/report/findings.html")
