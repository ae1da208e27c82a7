"""Normalization of embeddings to length 1, so that the cosine is a dot product."""

from __future__ import annotations

from typing import Any

import numpy as np


def normalize_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rows divided by their length; rows of zeros stay zeros."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: np.ndarray[Any, Any] = np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-9)
    return normalized
