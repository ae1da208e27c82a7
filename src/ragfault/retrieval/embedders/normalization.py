"""Normalization of embeddings to length 1, so that the cosine is a dot product."""

from __future__ import annotations

from typing import Any

import numpy as np


def normalize_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows over their length; a row of nothing stays zeros."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    made: np.ndarray[Any, Any] = np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-9)
    return made
