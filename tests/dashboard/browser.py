"""A headless Chromium, driven over its debugging pipe (the DevTools protocol), without any package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT = 60.0
_WITH_PIPES = (  # the browser expects its pipe as files 3 and 4
    "import fcntl, os, sys; ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD_CLOEXEC, 10) for one in sys.argv[1:3]];"
    "[os.dup2(one, at) for at, one in enumerate(ends, 3)]; os.execv(sys.argv[3], sys.argv[3:])"
)


def chromium() -> str:
    """The browser's program; where there is none the test is skipped and says so."""
    found = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs a browser: install the Debian package chromium, or name one in CHROMIUM")
    return found


class Browser:
    """One page in a browser of its own."""

    def __init__(self, folder: Path, *, wide: int = 1360, high: int = 900) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--mute-audio"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"]
        options += [f"--user-data-dir={folder}", "--remote-debugging-pipe", f"--window-size={wide},{high}", "about:blank"]
        command = [sys.executable, "-c", _WITH_PIPES, str(theirs_in), str(theirs_out), chromium(), *options]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._session, self._rest = 0, "", b""
        self.said: list[str] = []
        """Errors and warnings in the console since the last page was opened."""
        target = self._call("Target.getTargets")["targetInfos"][0]["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.size(wide, high)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._session = ""
        try:
            self._call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired, AssertionError):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, address: str) -> None:
        """Open an address; returns once the page is loaded."""
        self.said.clear()
        self._call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, wide: int, high: int, *, scale: float = 1.0, phone: bool = False) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=scale, mobile=phone)

    def media(self, **features: str) -> None:
        """`prefers_color_scheme="dark"`"""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", features=named)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = WAIT) -> Any:
        """Wait until an expression is true; returns its value."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"not true within {seconds:g} s: {script}\n{self.said}"
            select.select([self._in], [], [], 0.05)
        return found

    def there(self, selector: str) -> None:
        """Wait until there is such an element."""
        self.until(f"document.querySelector({json.dumps(selector)}) !== null")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def picture(self, path: Path, *, whole: bool = False, selector: str = "") -> None:
        """A picture of what is seen, of the whole page, or of one element."""
        options: dict[str, Any] = {"captureBeyondViewport": whole or bool(selector)}
        if selector:
            box = self.run(
                f"(r => ({{x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height, scale: 1}}))"
                f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
            )
            options["clip"] = box
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", **options)["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                found: dict[str, Any] = answer["result"]
                return found
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.said.append(
                str(params["exceptionDetails"].get("exception", params["exceptionDetails"]).get("description", params))
            )
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.said.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], WAIT)
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
