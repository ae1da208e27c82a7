"""What replays add to the command line."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="replay",
    verbs={
        "replay": Verb(
            "ragfault.apps.replay.cli",
            "Prove a cause, a fix or the part that broke: ask recorded requests again.",
            "locate",
        )
    },
    documents="ragfault.apps.replay.documents",
    report="ragfault.apps.replay.run_sections",
    ci="ragfault.apps.replay.ci",
    ci_options=(
        ("replay", "NAME", "Prove causes of bad answers: ask this PROVIDER:MODEL, FILE.py:NAME or URL again."),
        ("replay-budget", "AMOUNT", 'Most that this may cost: 2 (US$) or "200000 tokens".'),
    ),
    renamed=(("ablate", "replay --agent"),),
)
