"""What replays add to the command line."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="replay",
    verbs={
        "replay": Verb(
            "ragfault.apps.replay.cli", "Prove causes: ask failing traces again on your model, changed.", "locate"
        )
    },
    documents="ragfault.apps.replay.documents",
    report="ragfault.apps.replay.run_sections",
)
