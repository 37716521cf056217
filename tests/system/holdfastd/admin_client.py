"""Asks a server what operators see of it, by HTTP."""
import base64
import http.client
import json
import os
import re

import pytest
from conftest import PATIENCE, Holdfastd, Unfounded, eventually

MODULE = any(os.path.exists(os.path.join(folder, "holdfast-http.so")) for folder in os.environ.get("HOLDFAST_MODULE_DIR", "").split(":"))
needs_http = pytest.mark.skipif(not MODULE, reason="holdfast-http.so is not built (needs libmicrohttpd)")


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        assert self.headers["Content-Type"] == "application/json"
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class Asker:
    """Something with a method get(): a server whose admin is at `port`."""

    def at(self):
        """A node without a cluster serves nobody, so that it may not have opened its port for operators yet when it is there."""
        told = re.compile(r"operators can look at this node admin=(\S+):(\d+)")
        found = eventually(lambda: next(filter(None, map(told.search, self.logged())), None), "it has an admin")
        return found[1].strip("[]"), int(found[2])

    def ask(self, method, path, headers=None, body=None, user=None, password=None):
        connection = http.client.HTTPConnection(*self.at(), timeout=PATIENCE)
        try:
            connection.request(method, path, body=body, headers={**(headers or {}), **(basic(user, password) if user is not None else {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **words):
        return self.ask("GET", path, **words)

    def post(self, path, headers=None, **words):
        return self.ask("POST", path, {"X-Holdfast": "1", **(headers or {})}, **words)


class Admin(Asker, Holdfastd):
    def __init__(self, *args, admin="127.0.0.1:0", **words):
        super().__init__("--admin", admin, *args, **words)


class UnfoundedAdmin(Asker, Unfounded):
    def __init__(self, number=1, line=None):
        super().__init__(number, line, "--admin", "127.0.0.1:0", "--election-timeout", "3s")  # others use this machine, too
