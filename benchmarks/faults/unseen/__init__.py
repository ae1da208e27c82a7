"""A bench of faults that nothing was fitted to: three other systems, other texts, other kinds of fault.

`corpora` holds the texts and questions, `system` their pipelines, `kinds`, `fresh_kinds` and `second_kinds`
to `fifth_kinds` the faults:

    python -m benchmarks.faults.unseen [KIND …] [--group GROUP …] [--data FOLDER] [--no-key]
"""
