"""A headless Chromium, driven over the WebDriver protocol by the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "needs a browser: apt-get install chromium chromium-driver"


class Browser:
    """One page of a headless browser."""

    def __init__(self, address: str) -> None:
        self.address = address
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"binary": CHROMIUM, "args": flags}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = ""
        self.session = self._ask("POST", "", {"capabilities": {"alwaysMatch": always}})["sessionId"]

    def open(self, page: Path, hash: str = "") -> None:
        self._ask("POST", "/url", {"url": page.resolve().as_uri() + hash})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns on the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str) -> Any:
        """What a function body passes to its last argument, a callback."""
        return self._ask("POST", "/execute/async", {"script": script, "args": []})

    def resize(self, width: int, height: int) -> None:
        """The page's own size, smaller than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def dark(self) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": media})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def problems(self) -> list[str]:
        """Messages of the console that are warnings or worse."""
        logged = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in logged if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, those of data in the page itself apart."""
        logged = [json.loads(entry["message"])["message"] for entry in self._ask("POST", "/se/log", {"type": "performance"})]
        asked = [event["params"]["request"]["url"] for event in logged if event["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def close(self) -> None:
        self._ask("DELETE", "")

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        where = f"{self.address}/session" + (f"/{self.session}" if self.session else "") + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(where, data=data, method=verb, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is gone afterwards, with its driver."""
    assert DRIVER is not None
    process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        own = Browser(f"http://127.0.0.1:{_port(process)}")
        try:
            yield own
        finally:
            own.close()
    finally:
        process.terminate()
        process.wait(30)


def _port(process: subprocess.Popen[str]) -> int:
    """The port that the driver says it listens on."""
    assert process.stdout is not None
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if "started successfully on port" in line:
            return int(line.rstrip().rstrip(".").rsplit(" ", 1)[1])
    raise RuntimeError("chromedriver did not start")
