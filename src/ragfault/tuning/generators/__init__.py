"""Choose, tune and prove the generator: by replay of recorded answers or by calls, on questions held out."""

from ragfault.tuning.generators.choice import ChoiceTerms, choose_from_table, choose_generator, replay_null
from ragfault.tuning.generators.records import AnswerOutcome, GeneratorChoice
from ragfault.tuning.generators.search import GeneratorSpace, GeneratorTerms, choose_recorded, search_generators

__all__ = [
    "AnswerOutcome", "ChoiceTerms", "GeneratorChoice", "GeneratorSpace", "GeneratorTerms", "choose_from_table",
    "choose_generator", "choose_recorded", "replay_null", "search_generators",
]  # fmt: skip
