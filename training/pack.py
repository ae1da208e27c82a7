"""Pack the difference between trained and published weights of MiniLM-L6 into the file in the package.

    python training/pack.py FOLDER [--pairs PAIRS] [--tolerance 0.05] [--count 300]

FOLDER is the output of the training. Differences of matrices are rounded to integers times one step, the largest one
that keeps the logits within the tolerance on COUNT pairs; vectors and heads are 16-bit and 32-bit floats. PAIRS is
JSONL of {"claim", "ev": [...]}; without it, pairs are made from the demo. Needs the extra `nli` and
the published weights. Prints sizes and errors, and writes src/ragfault/judges/minilm/delta.xz.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.judges.checks.claims import extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm.encoder import (
    Array,
    MiniLMEncoder,
    TokenPair,
    WeightDelta,
    apply_delta,
    encode_pair,
    load_base_weights,
    load_tokenizer,
    locate_weights,
)
from ragfault.judges.minilm.judge import get_sentence_text, select_evidence

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/minilm/delta.xz"
STEPS = tuple(1.6 * 0.84**power for power in range(25))
"""The steps that are tried, the largest first, as multiples of the root mean square of the differences."""
TYPE_NAMES = {"float32": "F32", "float16": "F16", "int8": "I8"}


def load_trained(folder: Path, published: dict[str, Array]) -> dict[str, Array]:
    """Load the output of `training/minilm/distillation.py` under the names of the graph, over the published weights."""
    trained: dict[str, Array] = {}
    for path in sorted(folder.glob("student-*.npz")):
        with np.load(path) as packed:
            trained |= {name: packed[name].astype(np.float32) for name in packed.files}
    # three numbers of each token: its badness, its part in that of the claim, and the part of the opening token
    token, part, opening = trained.pop("out.w").T
    bias = trained.pop("out.b")
    heads = {
        "head.w": np.column_stack([np.concatenate([part, opening]), np.zeros(2 * len(part))]),
        "head.b": np.array([bias[1] + bias[2], 0.0]),
        "token.w": token[:, None],
        "token.b": bias[:1],
    }
    return published | trained | {name: tensor.astype(np.float32) for name, tensor in heads.items()}


def subtract_weights(trained_weights: dict[str, Array], published: dict[str, Array]) -> dict[str, Array]:
    """Return the tensors that training changed, less the published ones."""
    return {
        name: tensor - published[name] if name in published else tensor
        for name, tensor in trained_weights.items()
        if name not in published or not np.array_equal(tensor, published[name])
    }


def round_weights(added: dict[str, Array], published: dict[str, Array], step: float) -> dict[str, Array]:
    """Return matrices as 8-bit integers of one step, vectors as 16-bit floats, heads as 32-bit floats."""

    def round_tensor(name: str, tensor: Array) -> Array:
        if name not in published:
            return tensor.astype(np.float32)
        if tensor.ndim < 2:
            return tensor.astype(np.float16)
        return np.clip(np.rint(tensor / step), -127, 127).astype(np.int8)

    return {name: round_tensor(name, tensor) for name, tensor in added.items()}


def compress_tensors(tensors: dict[str, Array], notes: dict[str, str]) -> bytes:
    """Return the tensors in the layout of safetensors, compressed."""
    head: dict[str, Any] = {"__metadata__": notes}
    offset = 0
    for name, tensor in tensors.items():
        kind = TYPE_NAMES[str(tensor.dtype)]
        head[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(head).encode()
    body = b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 0, "pb": 0}]
    return lzma.compress(len(text).to_bytes(8, "little") + text + body, filters=filters)


def load_pairs(path: Path | None, count: int, folder: Path) -> list[TokenPair]:
    """Load the pairs that the error is measured on."""
    tokenizer = load_tokenizer(folder)
    if path is None:
        return build_demo_pairs(count, folder)
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    result = []
    for row in records[:: max(1, len(records) // count)]:
        result.append(encode_pair(tokenizer, row["claim"], row["ev"]))
    return result


def build_demo_pairs(count: int, folder: Path) -> list[TokenPair]:
    """Build pairs of the claims and their evidence from the traces of the demo."""
    tokenizer, table = load_tokenizer(folder), load_idf()
    result = []
    for traces in load_handbook().traces.values():
        for trace in traces:
            index = SentenceIndex([Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()])
            for claim in extract_claims(trace.answer or ""):
                evidence = select_evidence(parse_statement(strip_marks(claim.text), table), index)
                texts = [get_sentence_text(index, item) for item in evidence]
                result.append(encode_pair(tokenizer, strip_marks(claim.text), texts))
    return result[:: max(1, len(result) // count)]


def main() -> None:
    """Try the steps from the largest on, and write the differences with the first step within the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    folder = locate_weights()
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    published = load_base_weights(folder)
    trained_weights = load_trained(options.folder, published)
    added = subtract_weights(trained_weights, published)
    pairs = load_pairs(options.pairs, options.count, folder)
    exact_logits = np.array([item.bad for item in MiniLMEncoder(trained_weights).run(pairs)])
    matrices = [tensor.ravel() for name, tensor in added.items() if name in published and tensor.ndim == 2]
    root_mean_square = float(np.sqrt(np.mean(np.concatenate(matrices) ** 2)))
    for step in STEPS:
        tensors = round_weights(added, published, step * root_mean_square)
        state = apply_delta(published, WeightDelta(tensors, step * root_mean_square, digest, ""))
        error = np.abs(np.array([item.bad for item in MiniLMEncoder(state).run(pairs)]) - exact_logits)
        print(f"step {step:.3f} rms: worst {error.max():.4f}, mean {error.mean():.4f}", flush=True)
        if error.max() <= options.tolerance:
            break
    # repr gives the very float back
    file = compress_tensors(tensors, {"step": repr(step * root_mean_square), "base": digest})
    options.out.write_bytes(file)
    print(f"{options.out}: {len(file):,} bytes, {len(pairs)} pairs, worst {error.max():.4f}")


if __name__ == "__main__":
    main()
