"""A Chromium without a window, driven over a pipe by what its own developer tools speak: nothing else has to be installed."""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 30
BIN = next((found for found in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if found), None)
KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="holdfast-page-")
        to_us, from_us = os.pipe(), os.pipe()

        def wire():  # it reads 3, and writes 4
            os.dup2(from_us[0], 213), os.dup2(to_us[1], 214)  # those may be 3 or 4
            os.dup2(213, 3), os.dup2(214, 4)

        self.process = subprocess.Popen(
            [BIN, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--mute-audio",
             "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.folder})
        os.close(from_us[0]), os.close(to_us[1])
        self.read_fd, self.write_fd, self.buffer = to_us[0], from_us[1], b""
        self.numbers, self.answers, self.events = itertools.count(1), {}, []

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd), os.close(self.write_fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def pump(self, wait):
        if not select.select([self.read_fd], [], [], wait)[0]:
            return False
        piece = os.read(self.read_fd, 1 << 20)
        assert piece, "the browser has ended"
        self.buffer += piece
        *messages, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)
        return True

    def call(self, method, session=None, **words):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": words, **({"sessionId": session} if session else {})}
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while number not in self.answers:
            assert time.monotonic() < end, f"no answer to {method}"
            self.pump(1)
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]


class Tab:
    """A page of it. user: says the name and password when it is asked."""

    def __init__(self, browser, url, size=(1280, 900), dark=False, phone=False, user=None):
        self.browser, self.user = browser, user
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if user:
            self.call("Network.setExtraHTTPHeaders", headers={"Authorization": "Basic " + base64.b64encode(":".join(user).encode()).decode()})
        self.call("Page.navigate", url=url)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **words):
        return self.browser.call(method, self.session, **words)

    def run(self, code):
        """The value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, code, why):
        end = time.monotonic() + PATIENCE
        while not (value := self.run(code)):
            assert time.monotonic() < end, f"{why}: {self.run('document.body.innerText')}"
            self.browser.pump(0.05)
        return value

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector):
        """With the mouse, where it is: what lies over it would get the click."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y = self.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                        "return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys):
        for key in keys:
            words = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
            text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **words, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **words)

    def write(self, text):
        self.call("Input.insertText", text=text)

    def complaints(self):
        """What it has found wrong with the page: exceptions, and what its policy has refused."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"])
        return found

    def asked(self):
        """The URLs that it has asked for."""
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
