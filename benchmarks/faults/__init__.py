"""The fault bench: a small deterministic RAG system, two corpora for it, and faults of known layer and branch.

`system` answers, `corpora` asks, `injection` breaks; `check` shows what each fault does to the metrics:

    python -m benchmarks.faults.check [--size 200] [--strength medium] [--data FOLDER]
"""
