"""The file of replies: what names a reply, who may read it, what is done with it, and what is not one."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command as cli
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.budget import CallBudget, CallCost
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    ModelCall,
    ModelMessage,
    create_key_builder,
    default_cache_path,
    export_replies,
    load_reply,
    prune_cache,
    resolve_cache_path,
    store_reply,
    summarize_cache,
)
from ragfault.model.errors import InputError, JudgeStopped

ASKED = ModelCall(kind="retrieval", messages=(ModelMessage(role="user", text="?"),), schema={}, content="a")
BASE = LLMSettings(model="m", base_url="http://localhost:1/v1")


def stored_reply(text: str = "yes", **fields: Any) -> CachedReply:
    cache = CachedReply(text, False, "retrieval", "openai", "m", 10, 5, 1_000_000, 1_700_000_000)
    return cache._replace(**fields)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    cache = CacheFile(tmp_path / "cache.sqlite")
    yield cache
    cache.close()


def filled(place: Path, *replies: CachedReply) -> None:
    cache = CacheFile(place)
    with cache.transaction() as connection:
        for number, reply in enumerate(replies):
            store_reply(connection, number.to_bytes(32, "big"), reply)
    cache.close()


def test_the_key_depends_on_everything_that_affects_the_reply(file: CacheFile):
    """What is asked, the model, its place and its parameters name a reply; how it is carried does not."""
    with file.transaction() as connection:
        store_reply(connection, create_key_builder(BASE)(ASKED), stored_reply())
        store_reply(connection, create_key_builder(BASE)(ASKED), stored_reply("another"))
    same = replace(BASE, concurrency=3, timeout=1.0, budget=2.0, price=(1.0, 2.0), cache="other", tries=1)
    assert load_reply(file, create_key_builder(same)(ASKED)) == stored_reply()
    other_settings = [
        replace(BASE, model="n"),
        replace(BASE, provider="ollama"),
        replace(BASE, base_url="http://localhost:2/v1"),
        replace(BASE, base_url="http://localhost:1/team/v1"),
        replace(BASE, temperature=None),
        replace(BASE, max_tokens=5),
        replace(BASE, parameters={"seed": 1}),
        replace(BASE, structured="none"),
    ]
    assert [load_reply(file, create_key_builder(other)(ASKED)) for other in other_settings] == [None] * 8
    others = [replace(ASKED, content="b"), replace(ASKED, kind="generation"), replace(ASKED, vote=1)]
    assert [load_reply(file, create_key_builder(BASE)(other)) for other in others] == [None] * 3
    first, second = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert create_key_builder(replace(BASE, parameters=first))(ASKED) == create_key_builder(
        replace(BASE, parameters=second)
    )(ASKED)


def test_only_its_user_may_read_it(tmp_path: Path):
    """The file and what lies beside it are readable for their user alone."""
    if os.name == "nt":
        pytest.skip("needs permissions of POSIX")
    cache = CacheFile(tmp_path / "folder" / "cache.sqlite")
    with cache.transaction() as connection:
        store_reply(connection, b"k", stored_reply())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "folder").iterdir()}
    cache.close()
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"not a database, but text\n" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_what_is_no_file_of_replies_is_left_alone(tmp_path: Path, content: bytes):
    """A damaged file, or one of something else, is an error that says so, and stays as it is."""
    place = tmp_path / "cache.sqlite"
    place.write_bytes(content)
    with pytest.raises(InputError, match="damaged, or not a reply cache"):
        CacheFile(place)
    assert place.read_bytes() == content


def test_a_database_of_something_else_is_left_alone(tmp_path: Path):
    """Tables of another program are never written to."""
    place = tmp_path / "other.sqlite"
    connection = sqlite3.connect(place)
    connection.execute("create table notes (text)")
    connection.commit()
    connection.close()
    before = place.read_bytes()
    with pytest.raises(InputError, match="not a reply cache"):
        CacheFile(place)
    assert place.read_bytes() == before


def test_damage_within_stops_and_says_what_to_do(tmp_path: Path):
    """Where pages are damaged, asking stops and tells that the file can be moved away."""
    place = tmp_path / "cache.sqlite"
    filled(place, *(stored_reply("x" * 3000, time=number) for number in range(50)))
    size = place.stat().st_size
    with place.open("r+b") as handle:
        handle.seek(5 * 4096)
        handle.write(b"\xff" * (size - 5 * 4096))
    cache = CacheFile(place)
    with pytest.raises(JudgeStopped, match="Move it away"):
        list(export_replies(cache))
    cache.close()


def test_a_file_that_another_holds_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Who cannot write now is told so, and not to move the file away."""
    place = tmp_path / "cache.sqlite"
    filled(place, stored_reply())
    monkeypatch.setattr("ragfault.judges.llm.transport.reply_cache.LOCK_TIMEOUT", 0.01)
    other = sqlite3.connect(place, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(InputError, match=r"locked\. Free the file") as refused:
        CacheFile(place)
    assert "Move it away" not in str(refused.value)
    other.close()
    cache = CacheFile(place)
    assert len(summarize_cache(cache)) == 1
    cache.close()


def test_an_uncreatable_path_is_an_error(tmp_path: Path):
    """Where no file can be, another can be named."""
    (tmp_path / "taken").write_text("x")
    with pytest.raises(InputError, match="cache=… or RAGFAULT_CACHE"):
        CacheFile(tmp_path / "taken" / "cache.sqlite")


def test_the_file_is_named_by_flag_then_environment_then_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """ "none" names no file; without a name it lies in the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.delenv("RAGFAULT_CACHE", raising=False)
    assert resolve_cache_path(None) == default_cache_path()
    assert default_cache_path().name == "replies.sqlite"
    monkeypatch.setenv("RAGFAULT_CACHE", "none")
    assert resolve_cache_path(None) is None
    assert resolve_cache_path("x.sqlite") == Path("x.sqlite")
    assert resolve_cache_path("none") is None


def test_several_writers_lose_nothing(tmp_path: Path):
    """Many that share the file at once: each reply is there, and a budget is exact."""
    place, most = tmp_path / "cache.sqlite", 2_000
    tickets: list[int] = []

    def work(number: int) -> None:
        cache = CacheFile(place)
        budget = CallBudget(cache, "run", replace(BASE, budget_tokens=most))
        budget.begin(fresh=False)
        for step in range(40):
            ticket = budget.reserve(CallCost(10, 5, 0))
            if ticket is not None:
                tickets.append(ticket)
                budget.settle(ticket, CallCost(10, 5, 0), (f"{number} {step}".encode(), stored_reply()))
        budget.close()
        cache.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache = CacheFile(place)
    assert len(tickets) == most // 15
    assert summarize_cache(cache)[0].calls == most // 15
    assert CallBudget(cache, "run", BASE).usage().calls == most // 15
    cache.close()


RESERVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.budget import CallBudget, CallCost
from ragfault.judges.llm.transport.reply_cache import CacheFile
budget = CallBudget(CacheFile(Path(sys.argv[1])), "run", LLMSettings(model="m", budget_tokens=100))
budget.begin(fresh=False)
for sent in (False, True):
    ticket = budget.reserve(CallCost(30, 10, 0))
    if sent and "sent" in sys.argv:
        budget.mark_sent(ticket)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks that end with a process")
@pytest.mark.long
def test_a_crash_loop_is_charged_for_what_was_sent_alone(file: CacheFile):
    """Reservations of killed processes are freed if nothing was sent, else kept; those of the living stay."""
    budget = CallBudget(file, "run", replace(BASE, budget_tokens=100))
    budget.begin(fresh=True)
    assert budget.reserve(CallCost(1, 1, 0)) is not None

    def die(*arguments: str) -> None:
        done = subprocess.run([sys.executable, "-c", RESERVE_AND_DIE, str(file.path), *arguments], check=False)
        assert done.returncode == -signal.SIGKILL

    for _ in range(3):
        die()
    assert budget.usage().calls == 3
    budget.begin(fresh=False)
    assert budget.usage().calls == 1
    die("sent")
    budget.begin(fresh=False)
    assert (budget.usage().calls, budget.usage().prompt) == (2, 31)
    assert len(list(file.path.parent.glob("*.lock"))) == 1
    budget.close()
    assert not list(file.path.parent.glob("*.lock"))


@pytest.mark.parametrize("layout", [2, 3, 4])
def test_a_cache_of_the_last_layout_is_taken_over(tmp_path: Path, layout: int):
    """Replies and spending of a file from before times, batches, or owners of reservations stay."""
    place = tmp_path / "cache.sqlite"
    filled(place, stored_reply())
    with sqlite3.connect(place) as old:
        for table in ("batches", "batch_calls") if layout < 4 else ():
            old.execute(f"drop table {table}")
        old.execute("alter table replies drop column seconds")
        for column in ("owner", "sent") if layout == 2 else ():
            old.execute(f"alter table reservations drop column {column}")
        old.execute("insert into budgets (name, calls) values ('run', 2)")
        old.execute("insert into reservations (budget, prompt, completion, cost) values ('run', 1, 1, 0)")
        old.execute(f"pragma user_version = {layout}")
    old.close()
    cache = CacheFile(place)
    budget = CallBudget(cache, "run", BASE)
    budget.begin(fresh=False)
    assert budget.usage().calls == 3
    assert load_reply(cache, bytes(32)) == stored_reply()
    budget.close()
    cache.close()


def test_pruning_removes_what_is_meant_and_keeps_what_was_spent(tmp_path: Path):
    """By age, by model or all; the budgets of runs stay."""
    place = tmp_path / "cache.sqlite"
    filled(
        place,
        stored_reply(time=2**31),
        stored_reply(),
        stored_reply(model="n"),
        stored_reply(provider="ollama", model="n"),
    )
    cache = CacheFile(place)
    budget = CallBudget(cache, "run", BASE)
    budget.begin(fresh=True)
    budget.settle(budget.reserve(CallCost(1, 2, None)) or 0, CallCost(1, 2, None))
    assert prune_cache(cache, model="ollama/n") == 1
    assert prune_cache(cache, older=86400.0, model="m") == 1
    assert prune_cache(cache) == 2
    assert summarize_cache(cache) == []
    assert (budget.usage().calls, budget.usage().cost) == (1, None)
    budget.close()
    cache.close()


def test_the_command_counts_prunes_and_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`ragfault judge cache`: a table, JSON, both formats of export, and no removal without a word."""
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGFAULT_CACHE", "cache.sqlite")
    assert cli(["judge", "cache", "stats"]) == 0
    assert "no replies are stored" in capsys.readouterr().out
    filled(tmp_path / "cache.sqlite", stored_reply(), stored_reply("no", cost=None), stored_reply(kind="generation"))
    assert cli(["judge", "cache", "stats"]) == 0
    assert "openai/m  retrieval" in capsys.readouterr().out
    assert cli(["judge", "cache", "stats", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(row["kind"], row["calls"], row["cost"]) for row in groups] == [
        ("generation", 1, 0.001),
        ("retrieval", 2, None),
    ]
    assert cli(["judge", "cache", "export", "replies.jsonl"]) == 0
    assert cli(["judge", "cache", "export", "replies.parquet"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "replies.jsonl").read_text().splitlines()]
    assert lines == pq.read_table(tmp_path / "replies.parquet").to_pylist()
    assert {line["text"] for line in lines} == {"yes", "no"}
    assert cli(["judge", "cache", "export", "replies.jsonl"]) == 2
    assert cli(["judge", "cache", "prune"]) == 2
    assert cli(["judge", "cache", "prune", "--older", "soon", "-y"]) == 2
    assert cli(["judge", "cache", "prune", "--older", "30d", "-y"]) == 0
    assert "3 replies removed" in capsys.readouterr().out
    assert cli(["judge", "cache", "export", "more.parquet"]) == 0


def test_removal_is_asked_about_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without --yes and without an answer, or with No, nothing is removed."""
    place = tmp_path / "cache.sqlite"
    filled(place, stored_reply())
    for message, code, left in (("", 2, 1), ("n\n", 0, 1), ("y\n", 0, 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(message))
        assert cli(["judge", "cache", "prune", "--all", "--cache", str(place)]) == code
        cache = CacheFile(place)
        assert len(summarize_cache(cache)) == left
        cache.close()
