"""Average two packed weights: python -m training.encoder.average FIRST.npz SECOND.npz SHARE [TARGET.npz].

The mean of an early and a late state of one training reads as well as the late one and keeps more of what the early one
knew of other sets. SHARE is the weight of the second, in [0, 1]. Run `training.encoder.calibrate` afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ragfault.judges.encoder.model import expand_blocks
from training.encoder.pack import TARGET, quantise_weights, quantise_words


def unpack_weights(path: Path) -> dict[str, np.ndarray]:
    """Return packed weights as floats, under the names of the graph."""
    with np.load(path) as packed:
        weights = {name: packed[name] for name in packed.files}
    if "word.blocks" in weights:
        weights["word"] = expand_blocks(weights.pop("word.blocks"), weights.pop("word.d"))
    else:
        weights["word"] = weights["word"] * weights.pop("word.s")[:, None]
    for name in [name for name in weights if name[0].isdigit() and name.endswith(".s")]:
        matrix = f"{name.removesuffix('s')}w"
        weights[matrix] = (weights[matrix] * weights.pop(name)).astype(np.float32)
    return weights


def average_weights(first: dict[str, np.ndarray], second: dict[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
    """Return the packed mean of two states, the second with the weight `share`."""
    mean = {name: ((1 - share) * first[name] + share * value).astype(np.float32) for name, value in second.items()}
    return quantise_words(quantise_weights(mean))


if __name__ == "__main__":
    states = [unpack_weights(Path(path)) for path in sys.argv[1:3]]
    np.savez_compressed(sys.argv[4] if len(sys.argv) > 4 else TARGET, **average_weights(*states, float(sys.argv[3])))
