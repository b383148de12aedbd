"""A real browser for the tests: headless Chromium, driven through its own pipe, nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds until an answer counts as missing.
PATIENCE_S = 60.0

#: The browser reads commands from its descriptor 3 and answers on 4, whatever numbers our pipes have.
START = """
import os, sys
for ours, theirs in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(ours, theirs)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One window."""

    def __init__(self, process: subprocess.Popen[bytes], writes: int, reads: int):
        self._process, self._writes, self._reads = process, writes, reads
        self._rest, self._last, self._session = b"", 0, ""
        self._log: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Open a page from the disk."""
        address = path.resolve().as_uri()
        self._call("Page.navigate", url=address)
        ready = "return document.readyState === 'complete' && location.href.split('#')[0] === arguments[0]"
        deadline = time.monotonic() + PATIENCE_S
        while not self.run(ready, address):
            assert time.monotonic() < deadline, f"{path} does not open"
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, as its own code could, and return its value."""
        source = f"(function () {{ {script} }}).apply(null, {json.dumps(arguments)})"
        reply = self._call("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        problem = reply.get("exceptionDetails")
        assert problem is None, json.dumps(problem)[:500]
        return reply["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key that has a name, such as ``Tab`` or ``Enter``."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        told = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        text = {"Enter": "\r", " ": " "}.get(key)
        self._call("Input.dispatchKeyEvent", type="keyDown", **told, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **told)

    def resize(self, width: int, height: int) -> None:
        """Let the page be this wide, whatever the window's frame takes."""
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **shape)

    def prefer(self, scheme: str) -> None:
        """Let the reader prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def log(self) -> list[str]:
        """Return what the console has said since the last call: errors and refusals of the policy."""
        self.run("return null")  # what was said before has arrived before its answer
        said, self._log = self._log, []
        return said

    def screenshot(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writes, data) :]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            reply = self._receive(deadline)
            if reply.get("id") == self._last:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self._note(reply)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._reads, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            self._log.append(told["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self._log.append(" ".join(str(part.get("value", "")) for part in told["args"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            self._log.append(told["exceptionDetails"]["text"])


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser; skip the test where there is none."""
    chrome = next(filter(None, map(shutil.which, CHROMES)), None)
    if chrome is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    fcntl = pytest.importorskip("fcntl", reason="pipes to a browser need POSIX")
    theirs_in, writes = os.pipe()
    reads, theirs_out = os.pipe()
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, above), chrome, *flags],
            pass_fds=above,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs_in, theirs_out, *above):
            os.close(fd)
        try:
            browser = Browser(process, writes, reads)
            yield browser
            with contextlib.suppress(AssertionError, OSError):
                browser._call("Browser.close")
        finally:
            os.close(writes)
            os.close(reads)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
