"""What is deployed: the manifests and the image fit the command line, the server and the lock file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("yaml", reason="PyYAML is not installed")

import yaml
from fastapi.routing import iter_route_contexts

from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.cli.commands import cli

ROOT = Path(__file__).parents[4]
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")


def load(kind: str) -> Any:
    """Return the manifest of a kind."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "serve.yaml").read_text(encoding="utf-8"))
    return next(document for document in documents if document["kind"] == kind)


@pytest.fixture
def container() -> Any:
    [only] = load("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return only


def test_the_arguments_are_options_of_the_server(container: Any, tmp_path: Path):
    """The command line takes the arguments of the pod, and the settings that they make are valid with its token."""
    context = cli.make_context("ragfault", list(container["args"]), resilient_parsing=False)
    group = cli.get_command(context, "serve")
    start = group.commands["start"]
    given = start.make_context("start", container["args"][1:]).params
    assert given["host"] == "0.0.0.0"
    assert [entry["name"] for entry in container["env"]] == ["RAGFAULT_TOKEN"]
    names = ("host", "port", "workers", "trusted_proxies", "request_log")
    ServerSettings(store=tmp_path, token="0" * 64, **{name: given[name] for name in names})


def test_probes_ask_what_the_server_answers(container: Any, tmp_path: Path):
    """Each probe asks an address that needs no token, at the port that the server listens on."""
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0, judge="lexical"))
    paths = {str(route.path) for route in iter_route_contexts(app.routes)}
    app.state.server.store.close()
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["path"] for probe in probes} == {"/livez", "/readyz"} <= paths
    [port] = container["ports"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert f"--port={port['containerPort']}" in container["args"]
    [service] = load("Service")["spec"]["ports"]
    assert service["targetPort"] == port["name"]


def test_the_store_lies_on_the_volume(container: Any):
    """One pod owns the store, which outlives it: replicas would take it from each other."""
    spec = load("StatefulSet")["spec"]
    assert spec["replicas"] == 1
    [claim] = spec["volumeClaimTemplates"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    store = next(text.partition("=")[2] for text in container["args"] if text.startswith("--store="))
    assert store.startswith(places[claim["metadata"]["name"]] + "/")
    assert spec["template"]["spec"]["securityContext"]["runAsUser"] == int(
        re.search(r"--uid (\d+)", DOCKERFILE)[1]  # type: ignore[index]
    )


def test_the_image_pins_what_it_installs():
    """The base image names a patch release, every package has a version and a checksum, and nothing else is fetched."""
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["python:3.12.11-slim-bookworm"] * 2
    for line in re.findall(r"pip install (.*)", DOCKERFILE):
        assert "--require-hashes" in line or "--no-deps --no-build-isolation ." in line
    lock = (ROOT / "requirements-server.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in lock.splitlines() if line.strip()]
    assert all(re.match(r"[a-z0-9._-]+==\S+.* --hash=sha256:", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["server"]]
    assert {re.match(r"[\w-]+", text)[0].lower() for text in required} <= names  # type: ignore[index]


def test_every_copied_path_is_there():
    """What the image copies from the repository stands in it."""
    for line in re.findall(r"^COPY (?!--from)(.*)", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_the_image_copies_what_the_package_is_built_from():
    """The build needs no other file of the repository, and its backend is among what the lock file installs."""
    copied = {
        name.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.*)", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    }
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["pyproject.toml", project["readme"], *project["license-files"], *wheel["packages"]]
    assert {name.split("/")[0] for name in needed} <= copied
    lock = (ROOT / "requirements-server.lock").read_text(encoding="utf-8")
    for text in settings["build-system"]["requires"]:
        name = re.split(r"[^\w-]", text)[0]
        assert re.search(rf"^{name}==", lock, re.MULTILINE), text
