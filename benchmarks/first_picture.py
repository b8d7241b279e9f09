"""From `git clone` to a moving picture in the browser, with nothing cached: `python -m benchmarks.first_picture`.

Prints when each stage began, and the processor time of all of them without the browser's. Needs chromium.
"""

import os
import resource
import signal
import subprocess
import tempfile
import time

from tests.browser_support import ARGUMENTS, CHROMIUM, ROOT, Tab

LIMIT_S = 90.0  # on two quiet cores
STAGES = ("Making", "Installing", "compiling", "the page is at")


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        began = time.monotonic()
        subprocess.run(["git", "clone", "-q", str(ROOT), f"{folder}/microsim"], check=True)
        own = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        cold = {
            **dict.fromkeys(own, ""),
            "NUMBA_CACHE_DIR": f"{folder}/kernels",
            "PIP_NO_CACHE_DIR": "1",
            "UV_NO_CACHE": "1",
            "BROWSER": "true",
        }
        run = subprocess.Popen(
            ["make", "demo", "ARGS=--view-port 0"], cwd=f"{folder}/microsim", env={**os.environ, **cold}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            address = _address(run, began)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            tab = Tab(browser, address)
            tab.until("document.getElementById('ms-veil').hidden")
            tab.until(f"Number(document.getElementById('ms-tick').textContent.replace(/,/g, '')) > {tab.tick}")
            total_s = time.monotonic() - began
            browser.close()
        finally:
            os.killpg(run.pid, signal.SIGTERM)
            run.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor_s = used.ru_utime + used.ru_stime
        print(f"{total_s:6.1f} s  moving picture ({processor_s:.0f} s of processor time, {os.cpu_count()} cores)")
        print(f"promised: under {LIMIT_S:.0f} s on two quiet cores")


def _address(run: "subprocess.Popen[str]", began: float) -> str:
    assert run.stdout is not None
    for line in run.stdout:
        if any(stage in line for stage in STAGES):
            print(f"{time.monotonic() - began:6.1f} s  {line.strip()}", flush=True)
        if STAGES[-1] in line:
            return line.partition("the page is at ")[2].split()[0]
    raise SystemExit(f"make demo ended with exit code {run.wait()}")


if __name__ == "__main__":
    main()
