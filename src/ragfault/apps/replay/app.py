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
)
