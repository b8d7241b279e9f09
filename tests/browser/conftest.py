"""A real browser. Without chromium these tests are skipped, unless MICROSIM_NEED_BROWSER is set."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.browser_support import ARGUMENTS, CHROMIUM, WORLD, Run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        if os.environ.get("MICROSIM_NEED_BROWSER"):
            pytest.fail("there is no chromium: apt install chromium")
        pytest.skip("there is no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "playground.yaml"
    path.write_text(json.dumps(WORLD))
    return path


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    """Starts runs, which end with the test."""
    yield from _runs(tmp_path_factory)


@pytest.fixture(scope="module")
def started_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    """Starts runs that the tests of a file share."""
    yield from _runs(tmp_path_factory)


def _runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def start(*arguments: str) -> Run:
            run = Run(tmp_path_factory.mktemp("run"), *arguments)
            stack.callback(run.stop)
            return run

        yield start
