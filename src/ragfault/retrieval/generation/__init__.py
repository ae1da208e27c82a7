"""Generation: the generator of a pipeline as settings, and the call that answers a question from chunks."""

from ragfault.retrieval.generation.answering import answer_trace, load_writer
from ragfault.retrieval.generation.settings import AnswerExample, GeneratorConfig

__all__ = ["AnswerExample", "GeneratorConfig", "answer_trace", "load_writer"]
