"""Settings that all tests share: hypothesis without a deadline, and no cache of the user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import settings

settings.register_profile("ragfault", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("ragfault")

# As the command line does: tests run in processes beside each other, and threads of small products wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Child processes inherit it, so no test reads or writes the cache of whoever runs the tests.
os.environ["RAGFAULT_CACHE"] = str(Path(tempfile.mkdtemp(prefix="ragfault-tests-")) / "replies.sqlite")
