"""Settings and fixtures that all tests share."""

import gc
import os
import shutil
import signal
from pathlib import Path

import pytest


# The clients must never contact the Hub, whatever a test asks of them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores better than threads would

# A shell's background jobs ignore Ctrl-C, and so would every process that tests start and send it to.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Debian's is named first: it is the smallest.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items):
    """Marks whole folders, and starts the slowest files first so that nothing waits for them at the end."""
    for item in items:
        if item.path.parent.name in ("system", "hub", "serving", "scripts"):
            item.add_marker("system")
    first = ("test_documents.py", "test_sharing.py", "test_processes.py", "test_translate.py")
    items.sort(key=lambda item: ((*first, item.path.name).index(item.path.name), item.path.parent.name != "system"))


def pytest_collection_finish():
    """Exempts all that is imported from garbage collection: scanning it again and again is a fifth of the work."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    """In continuous integration a skipped test fails the run, unless the data, program or GPU it needs is missing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None:
        reasons = [report.longrepr[2] for report in reporter.stats.get("skipped", [])]
        may_be = ["there is no browser", "there is no node", "onnxruntime-web", "there is no GPU"]
        may_be += [] if SHARED.is_dir() else ["../shared"]
        if not all(any(lacking in reason for lacking in may_be) for reason in reasons):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def shared() -> Path:
    """Public data beside the repository, for tests that also look at real text."""
    if not SHARED.is_dir():
        pytest.skip("the data folder ../shared/data is not there")
    return SHARED


@pytest.fixture(scope="module")
def new_page():
    """Opens a page in a browser, which waits longer than by default: other tests take their share of the processor."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser, none of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])

        def opened(**options):
            page = browser.new_page(**options)
            page.set_default_timeout(120_000)
            return page

        yield opened
        browser.close()
