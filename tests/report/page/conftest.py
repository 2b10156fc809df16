import shutil
from pathlib import Path

import pytest

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
EVERYTHING = (
    "performance",
    "permutation",
    "adversarial",
    "gradient",
    "leave_one_out",
    "correlation",
    "erasure",
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="no selenium: pip install -e '.[dev]'"
    )
    chromium = shutil.which("chromium")
    control = shutil.which("chromedriver")
    if chromium is None or control is None:
        pytest.skip(
            "no chromium or no chromedriver on the path: apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(control))
    running.set_script_timeout(600)
    yield running
    running.quit()


@pytest.fixture
def visit(driver):
    """A function that opens a page at a width, waits until its examples are there, and returns the
    driver."""

    def opened(page: Path, width: int = 1400, *, dark: bool = False):
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        driver.get_log("browser")
        driver.get(page.as_uri())
        until(driver, "return document.documentElement.dataset.ready")
        return driver

    return opened


def until(driver, condition: str, *arguments):
    """What a script returns as soon as it is true, within ten seconds."""
    script = """
        const [condition, given, done] = arguments;
        const check = new Function(condition);
        const end = performance.now() + 10000;
        const look = () => {
          const found = check(...given);
          if (found || performance.now() > end) done(found); else setTimeout(look, 20);
        };
        look();
    """
    return driver.execute_async_script(script, condition, list(arguments))
