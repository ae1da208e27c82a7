"""Write the running average of a training as arrays: python -m training.encoder.export STATE TARGET.npz."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

if __name__ == "__main__":
    saved = torch.load(Path(sys.argv[1]) / "state.pt", weights_only=False)
    tensors = {name: value.numpy() for name, value in saved["average"].items() if value.is_floating_point()}
    np.savez(sys.argv[2], **tensors)
    print(f"{saved['seen']:,} pairs seen")
