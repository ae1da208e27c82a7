"""What words tell of a reply, for the judges that have no model for it."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.judges.checks.claims import is_refusal
from ragfault.judges.checks.refusals import is_refusal_sentence


class WordReading:
    """The part of a session that recognises refusals by trained weights of words; in English only."""

    def is_refusal(self, answer: str) -> bool:
        """Return whether an answer as a whole is a refusal.

        >>> WordReading().is_refusal("I do not know the answer."), WordReading().is_refusal("Oslo is old.")
        (True, False)
        """
        return is_refusal(answer)

    def is_refusal_sentence(self, sentence: str) -> bool:
        """Return whether a sentence refuses or says that the sources are silent.

        >>> WordReading().is_refusal_sentence("The passages do not mention a deadline.")
        True
        """
        return is_refusal_sentence(sentence)

    def score_agreement(self, answer: str, references: Sequence[str]) -> float | None:  # noqa: ARG002
        """Return None: words are compared claim by claim.

        >>> WordReading().score_agreement("It is free.", ["Yes"])
        """
        return None

    def read_answer(self, query: str, answer: str) -> float | None:  # noqa: ARG002
        """Return None: whether an answer answers its question is told by what it covers of it.

        >>> WordReading().read_answer("When?", "At nine.")
        """
        return None
