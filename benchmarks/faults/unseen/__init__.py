"""A bench of faults that nothing was fitted to: two other systems, other texts, other kinds of fault.

`corpora` holds the texts and questions, `system` the pipeline of both systems, `kinds` the faults:

    python -m benchmarks.faults.unseen [KIND …] [--group developed|held-out|fresh] [--data FOLDER] [--no-key]
"""
