"""What the monitor and its server add to the command line."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="watch",
    verbs={
        "monitor": Verb(
            "ragfault.apps.watch.cli.monitor", "Monitor runs over time: drops, the layer to blame, alerts.", "protect"
        ),
        "serve": Verb(
            "ragfault.apps.watch.cli.serve",
            "Receive live traces, score and monitor them, and show a dashboard.",
            "protect",
        ),
    },
    documents="ragfault.apps.watch.documents",
)
