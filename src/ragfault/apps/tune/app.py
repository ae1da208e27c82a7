"""What tuning adds to the command line and the server."""

from ragfault.apps.registry import App, Verb

APP = App(
    name="tune",
    verbs={
        "tune": Verb("", "Search for a better pipeline or generator, and prove the gain.", "improve"),
        "tune pipeline": Verb(
            "ragfault.apps.tune.cli.retrieval", "Search for the best retrieval pipeline, and prove its gain.", "improve"
        ),
        "tune generator": Verb(
            "ragfault.apps.tune.cli.generator",
            "Choose a generator, its settings or its prompt, and prove the gain.",
            "improve",
        ),
        "tune adapt": Verb(
            "ragfault.apps.tune.cli.adapt", "Adapt retrieval parameters per route from logs, above a floor.", "improve"
        ),
        "lint": Verb(
            "ragfault.apps.tune.cli.retrieval", "Check a pipeline or a run for six pitfalls of retrieval.", "improve"
        ),
        "tune savings": Verb("ragfault.apps.tune.cli.retrieval", "Estimate what better retrieval saves.", "improve"),
        "tune relevance": Verb(
            "ragfault.apps.tune.cli.retrieval", "Score documents against a query, by one judge or several.", "improve"
        ),
        "tune retrieve": Verb(
            "ragfault.apps.tune.cli.retrieve", "Record what a pipeline retrieves for questions, as traces.", "improve"
        ),
        "tune stores": Verb(
            "ragfault.apps.tune.cli.stores", "Measure what approximate search in vector stores misses.", "improve"
        ),
    },
    documents="ragfault.apps.tune.documents",
    pages="ragfault.apps.tune.pages.routes",
    page_options=(("policy", "Policy of ragfault adapt to show, and to take back."),),
)
