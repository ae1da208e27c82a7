"""Which terms texts have, as the inputs of a regression."""

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_matrix


def count_terms(slots: Iterable[Iterable[int]], size: int) -> csr_matrix:
    """Return which of `size` slots each text has, a row a text."""
    rows = [np.fromiter(sorted(text), int) for text in slots]
    ends = np.cumsum([0, *map(len, rows)])
    return csr_matrix((np.ones(ends[-1]), np.concatenate(rows), ends), shape=(len(rows), size))
