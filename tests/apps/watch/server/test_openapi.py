"""The description of the interface is true: schemathesis asks for all that it allows, and for what it forbids."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from fastapi.routing import iter_route_contexts

from dashboard_server import DashboardServer

pytestmark = pytest.mark.long

TOKEN = "rf_schema"

CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "403", "404", "422"]

[[operations]]
include-method = "POST"
checks.positive_data_acceptance.enabled = false
checks.negative_data_rejection.enabled = false
"""
"""What no schema says: 422 is for what can be read and cannot be done (windows that end before they begin, keys of no
page), and whether bytes of protobuf, lines, or packed ones are a request is seen when they are opened."""

HOOKS = '''
import gzip
import json
import zlib

import schemathesis

PACKED = {"gzip": gzip.compress, "deflate": zlib.compress}


def as_bytes(value):
    if isinstance(value, bytes):
        return value
    return value.data if hasattr(value, "data") else str(value).encode()


@schemathesis.serializer("application/x-protobuf", "application/x-ndjson")
def plain(_, value):
    return as_bytes(value)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Pack a body as its header says."""
    pack = PACKED.get((case.headers or {}).get("Content-Encoding"))
    if pack is not None and case.method == "POST":
        as_json = case.media_type == "application/json" and not isinstance(case.body, bytes)
        case.body = pack(json.dumps(case.body).encode() if as_json else as_bytes(case.body))
'''
"""What schemathesis cannot know: bodies that are bytes, and bodies that are packed."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DashboardServer, str]]:
    """A server with two hours of traffic and with alerts that fire, where a token is needed."""
    server = DashboardServer(tmp_path_factory.mktemp("described") / "s", token=TOKEN)
    server.fill()
    server.watch()
    with server.serving() as url:
        yield server, url


def described(url: str) -> dict[str, Any]:
    """Return the OpenAPI document of a server."""
    asked = Request(f"{url}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked, timeout=60) as response:
        return dict(json.load(response))


def test_everything_that_is_no_page_is_described(served: tuple[DashboardServer, str]):
    """The description holds every route of the server but its pages, its forms and their files, with its methods."""
    server, url = served
    paths = described(url)["paths"]
    there = {
        (route.path.replace(":path", ""), method.lower())
        for route in iter_route_contexts(server.app.routes)
        for method in route.methods
        if route.include_in_schema
    }
    assert {(path, method) for path, item in paths.items() for method in item} == there
    hidden = [route.path for route in iter_route_contexts(server.app.routes) if not route.include_in_schema]
    assert not [path for path in hidden if path.startswith("/v1") or path.endswith(".json")]


def test_every_operation_says_what_it_takes_and_answers(served: tuple[DashboardServer, str]):
    """Each operation has a summary, a good answer, its faults as problems, and a time to wait where it says 429."""
    document = described(served[1])
    assert document["openapi"].startswith("3.1")
    for path, item in document["paths"].items():
        for method, operation in item.items():
            answers = operation["responses"]
            assert operation["summary"].endswith("."), path
            assert "200" in answers
            for status, answer in answers.items():
                assert status == "200" or "application/problem+json" in answer["content"], (path, status)
            if path not in ("/healthz", "/livez", "/readyz"):
                assert {"401", "403", "429"} <= set(answers), path
                assert "Retry-After" in answers["429"]["headers"]
            assert ("requestBody" in operation) == (method == "post")
    spans = document["paths"]["/v1/traces"]["post"]["requestBody"]["content"]
    assert set(spans) == {"application/json", "application/x-protobuf"}
    trace = document["components"]["schemas"]["SentTrace"]
    assert trace["required"] == ["id", "query"]


def test_a_server_is_what_it_says(served: tuple[DashboardServer, str], tmp_path: Path):
    """Whatever is asked, status, type and shape of the answer are those of the description, and none is a failure."""
    pytest.importorskip("schemathesis", reason="schemathesis holds a server against its description")
    (tmp_path / "schemathesis.toml").write_text(CONFIG, "utf-8")
    (tmp_path / "hooks.py").write_text(HOOKS, "utf-8")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{served[1]}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--max-examples", "15", "--seed", "7"),
        *("--phases", "examples,fuzzing", "--continue-on-failure", "--no-color", "--warnings", "off"),
        *("--generation-database", "none"),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SCHEMATHESIS_HOOKS": "hooks"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
