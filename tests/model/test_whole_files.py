"""Laws of the readers of small files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragfault.io.formats.columns import load_column_map
from ragfault.judges.cards.card import read_card
from ragfault.judges.domain.profile import load_profile
from ragfault.labels.judges.flakiness import load_flakiness
from ragfault.labels.rubrics.proofs import load_rubric_measurement
from ragfault.model.errors import InputError
from ragfault.model.rubrics import load_rubrics
from ragfault.model.whole_files import read_text, read_toml
from ragfault.retrieval.pipeline_config import read_pipeline_config

JSON_READERS = (load_flakiness, load_rubric_measurement, read_card)
TOML_READERS = (load_column_map, load_profile, load_rubrics, read_pipeline_config, read_toml)


@pytest.mark.parametrize("read", [*JSON_READERS, *TOML_READERS])
@pytest.mark.parametrize("content", [b"\xff", b'{"judge": "\xff"}', b"[" * 100_000, b"[", None])
def test_a_file_that_cannot_be_read_is_named(
    read: Callable[[Path], object], content: bytes | None, tmp_path: Path
) -> None:
    """A file that is missing, not UTF-8, malformed or too deep is an InputError with its name, by every reader."""
    path = tmp_path / "odd.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"odd\.toml"):
        read(path)


def test_a_text_keeps_its_characters(tmp_path: Path) -> None:
    """A text is read as UTF-8, whatever the locale is."""
    (tmp_path / "a.txt").write_bytes("Fähre\n".encode())
    assert read_text(tmp_path / "a.txt") == "Fähre\n"
