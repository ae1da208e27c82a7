"""What the guard adds to the command line and the server."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="guard",
    verbs={
        "guard": Verb(
            "ragfault.apps.guard.cli", "Release answers at run time with a bound on the share of bad ones.", "protect"
        )
    },
    documents="ragfault.apps.guard.documents",
    pages="ragfault.apps.guard.pages.routes",
)
