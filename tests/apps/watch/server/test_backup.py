"""Backups of a store: of one moment while it is written to, and checked before anything is restored."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("jinja2", reason="the pages need the extra `server`")

from dashboard_server import DashboardServer
from ragfault.apps.watch.server.storage.backup import check_backup, restore_backup
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.cli.commands import run_command as command
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

OWN = "rf_the-servers-own-token"


@pytest.mark.long
def test_a_backup_of_a_busy_server_is_of_one_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """While traces come in by pairs the backup holds whole pairs, and all that came before it."""
    monkeypatch.setenv("RAGFAULT_TOKEN", OWN)
    server = DashboardServer(tmp_path / "s", token=OWN)
    server.fill()
    before = server.store.compute_totals().traces
    done = threading.Event()

    def send() -> None:
        at = 0
        while not done.is_set():
            server.store.append_traces([Trace(id=f"{side}-{at}", query="q") for side in ("left", "right")]).result()
            at += 1

    with server.serving() as url:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            assert command(["serve", "backup", url, "-o", str(tmp_path / "b.tar"), "--json"]) == 0
        finally:
            done.set()
            sender.join()
        printed = json.loads(capsys.readouterr().out)
        assert command(["serve", "backup", url, "-o", str(tmp_path / "b.tar")]) == 2
        assert "exists" in capsys.readouterr().err
        assert [row.action for row in server.store.read_audit()] == ["backup_downloaded"]
        assert server.store.compute_totals().bytes > 0
    assert not list((tmp_path / "s").glob(".backup*"))
    assert command(["serve", "restore", str(tmp_path / "b.tar"), "--store", str(tmp_path / "r")]) == 0
    assert "checksums verified" in capsys.readouterr().out
    store = open_store(tmp_path / "r")
    ids = {line.id for line in store.list_traces(TraceSelection(limit=1000)).lines}
    sides = {side: {id.partition("-")[2] for id in ids if id.startswith(side)} for side in ("left-", "right-")}
    assert sides["left-"] == sides["right-"]
    assert printed["traces"] == store.compute_totals().traces >= before
    assert store.read_rollups(0, 2**31 - 1)
    assert store.get_trace("v1/staff-02").scores
    assert store.append_traces([Trace(id="left-0", query="q"), Trace(id="new", query="q")]).result().added >= 1
    store.close()
    assert command(["serve", "restore", str(tmp_path / "b.tar"), "--store", str(tmp_path / "r")]) == 2
    assert "holds a store already" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup of a store of a few traces that nobody runs, with a run and an audit log beside it."""
    store = open_store(tmp_path / "s")
    store.append_traces([Trace(id=str(at), query="q") for at in range(5)]).result()
    store.close()
    (tmp_path / "s" / "audit.jsonl").write_text('{"who":"ann"}\n')
    (tmp_path / "s" / "runs" / "a").mkdir(parents=True)
    (tmp_path / "s" / "runs" / "a" / "manifest.json").write_text("{}")
    assert command(["serve", "backup", str(tmp_path / "s"), "-o", str(tmp_path / "b.tar")]) == 0
    return tmp_path / "b.tar"


def test_what_lies_beside_the_database_is_restored_too(saved: Path, tmp_path: Path):
    """The audit log and the runs come back as they were."""
    assert set(check_backup(saved).files) == {"ragfault.duckdb", "audit.jsonl", "runs/a/manifest.json"}
    restore_backup(saved, tmp_path / "r")
    for name in ("audit.jsonl", "runs/a/manifest.json"):
        assert (tmp_path / "r" / name).read_text() == (tmp_path / "s" / name).read_text()
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["audit.jsonl", "ragfault.duckdb", "runs"]


def test_a_backup_that_was_changed_or_cut_is_refused(saved: Path, tmp_path: Path):
    """No byte can be changed or lost anywhere without the restoration saying so and leaving no folder behind."""
    (tmp_path / "there").mkdir()
    content = saved.read_bytes()
    for at in (600, len(content) // 3, len(content) - 12_000):
        saved.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(InputError):
            restore_backup(saved, tmp_path / "new" / "r")
    for size in (0, 100, 512, 5000, len(content) // 2, len(content) - 3000):
        saved.write_bytes(content[:size])
        with pytest.raises(InputError):
            restore_backup(saved, tmp_path / "there")
    assert not (tmp_path / "new").exists()
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "extra", "ragfault.duckdb"])
def test_a_backup_writes_only_what_its_manifest_names(saved: Path, tmp_path: Path, name: str):
    """A file from elsewhere in the archive, a second one of a name, or a link is refused."""
    for kind in (tarfile.REGTYPE, tarfile.SYMTYPE):
        forged = tmp_path / f"forged-{int(kind)}.tar"
        with tarfile.open(saved) as source, tarfile.open(forged, "w") as target:
            for member in source:
                target.addfile(member, source.extractfile(member))
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, 0, "/etc/passwd"
            target.addfile(info, io.BytesIO())
        with pytest.raises(InputError, match="not a file of its manifest"):
            restore_backup(forged, tmp_path / "r")
    assert not (tmp_path / "escaped").exists()


def test_a_store_elsewhere_is_backed_up_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """ClickHouse makes its own backups, and a folder without a store is no store."""
    assert command(["serve", "backup", "clickhouse://db/x", "-o", str(tmp_path / "b")]) == 2
    assert "BACKUP DATABASE" in capsys.readouterr().err
    assert command(["serve", "backup", str(tmp_path / "none"), "-o", str(tmp_path / "b")]) == 2
    assert "no store" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
