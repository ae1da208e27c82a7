"""The fault bench: a small deterministic RAG system, two corpora for it, and faults of known layer and branch.

`system` answers the questions of `corpora`, `injection` has the faults; `check` prints their effects on the metrics:

    python -m benchmarks.faults.check [--size 200] [--strength medium] [--data FOLDER]
"""
