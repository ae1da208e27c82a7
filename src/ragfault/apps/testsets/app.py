"""What evaluation sets add to the command line and the server."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="testsets",
    verbs={
        "testset": Verb(
            "ragfault.apps.testsets.cli.group",
            "Make evaluation sets from a corpus, and keep them valid as it changes.",
            "improve",
        )
    },
    documents="ragfault.apps.testsets.documents",
    pages="ragfault.apps.testsets.pages.routes",
    report="ragfault.apps.testsets.run_sections",
    page_options=(
        ("testset", "Evaluation set that people review on the dashboard."),
        ("reviews", "File of their reviews.  [default: reviews.jsonl next to the set]"),
        ("corpus", "Corpus in which their new gold spans are located."),
    ),
)
