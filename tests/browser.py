"""A real browser for the tests: headless Chromium driven through chromedriver's own HTTP interface, nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Browser:
    """One window."""

    def __init__(self, base: str, session: str):
        self._session = f"{base}/session/{session}"

    def open(self, path: Path) -> None:
        """Open a page from the disk."""
        _call("POST", f"{self._session}/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, as its own code could, and return its value."""
        return _call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int) -> None:
        """Let the page be this wide, whatever the window's frame takes."""
        command = {
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        }
        _call("POST", f"{self._session}/goog/cdp/execute", command)

    def prefer(self, scheme: str) -> None:
        """Let the reader prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}}
        _call("POST", f"{self._session}/goog/cdp/execute", command)

    def log(self) -> list[str]:
        """Return what the console has said since the last call: errors and refusals of the policy."""
        return [entry["message"] for entry in _call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(_call("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        """End the session."""
        _call("DELETE", self._session)


def _call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.read().decode()[:500]}") from None


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser; skip the test where there is none."""
    driver = shutil.which("chromedriver")
    chrome = next(filter(None, map(shutil.which, CHROMES)), None)
    if driver is None or chrome is None:
        pytest.skip("needs Chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        browser = _session(f"http://127.0.0.1:{port}", chrome)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(timeout=20)


def _session(base: str, chrome: str) -> Browser:
    options = {
        "binary": chrome,
        "args": [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ],
    }
    wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
    deadline = time.monotonic() + 60
    while True:
        try:
            made = _call("POST", f"{base}/session", {"capabilities": wanted})
            return Browser(base, made["sessionId"])
        except OSError:  # the driver is not listening yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
