"""Laws of the embedder minilm: the published model, whose weights a package of its own brings."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ragfault.model.errors import MissingExtra, UsageError
from ragfault.retrieval.embedders.minilm import (
    INSTALL_COMMAND,
    WEIGHTS_PACKAGE,
    encode_text,
    load_tokenizer,
    load_weights,
    locate_weights,
)
from ragfault.retrieval.embedders.registry import load_embedder

needed = pytest.mark.skipif(find_spec(WEIGHTS_PACKAGE) is None, reason=f"needs: {INSTALL_COMMAND}")


@needed
def test_minilm_weighs_the_stretches_of_a_long_text_by_their_tokens():
    """A few words behind 254 tokens turn the row of a text a little, and not by half."""
    long = "The ferry leaves the harbour in the evening. " * 27 + "The ferry leaves the harbour in"
    rows = load_embedder("minilm").embed([long, long + " Bananas are yellow when they are ripe."])
    assert rows[0] @ rows[1] > 0.95


@needed
def test_minilm_knows_what_is_meant():
    """A text of the same meaning is near without a word in common."""
    embedder = load_embedder("minilm")
    rows = embedder.embed(["The boat departs in the evening.", "The cat sleeps when it rains."])
    asked = embedder.embed(["When does the ferry leave?"], query=True)[0]
    near, far = rows @ asked
    assert near > far
    assert rows.shape == (2, embedder.dimensions)


@needed
def test_a_text_has_one_vector_alone_and_among_others():
    """Its length is 1; a text without a token has zeros, and no text gives no row."""
    texts = ["The ferry leaves at ten.", "", "Dogs need a lead. " * 90, "短い文"]
    embedder = load_embedder("minilm")
    together = embedder.embed(texts)
    assert np.linalg.norm(together, axis=1) == pytest.approx([1, 0, 1, 1], abs=1e-5)
    for row, text in zip(together, texts, strict=True):
        assert embedder.embed([text])[0] == pytest.approx(row, abs=1e-5)
    assert embedder.embed([]).shape == (0, embedder.dimensions)


@needed
def test_a_row_has_at_most_as_many_tokens_as_the_model_reads():
    """A long text has several rows, which hold all of its tokens in order, each between the opening and end token."""
    rows = encode_text(load_tokenizer(locate_weights()), "The ferry leaves the harbour. " * 200)
    assert [len(row) for row in rows] == [256] * (len(rows) - 1) + [len(rows[-1])]
    assert all((row[0], row[-1]) == (101, 102) for row in rows)
    assert sum(len(row) - 2 for row in rows) == 200 * 6


@needed
def test_other_weights_are_refused(tmp_path: Path):
    """A folder with other weights is refused with the command that installs the right ones."""
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(UsageError, match="not those of the embedder minilm") as caught:
        load_weights(tmp_path)
    assert INSTALL_COMMAND in str(caught.value)


def test_a_tokenizer_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(tmp_path)


def test_without_weights_the_command_is_named_that_installs_them():
    """The embedder is refused, and its error keeps the command on its way to another process."""
    hide = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == sys.argv[1] else find(name, *rest)\n"
        "from ragfault.retrieval.embedders.registry import load_embedder\n"
        "try: load_embedder('minilm')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", hide, WEIGHTS_PACKAGE],
        check=True,
        capture_output=True,
        text=True,
        env={"HF_HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
    ).stdout
    assert output.startswith("MissingExtra")
    assert INSTALL_COMMAND in output
    copy = pickle.loads(pickle.dumps(MissingExtra("the embedder minilm", "", INSTALL_COMMAND)))
    assert INSTALL_COMMAND in str(copy)
