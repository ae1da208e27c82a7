"""Records of the search for an unclear sentence of a rubric: what was tried, what was found, and the proof."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.labels.rubrics.halves import AgreementProof
from ragfault.labels.rubrics.sentences import RubricSentence
from ragfault.model.rubrics import Rubric

Wording = Literal["left out", "as people read it", "as the judge reads it"]
"""What stands in the place of a sentence in a trial."""


class SentenceTrial(Struct, frozen=True, kw_only=True):
    """Rubric with one sentence left out or rewritten, judged on the half of the labels that is learnt from."""

    sentence: int
    """Place of the sentence in the list."""
    wording: Wording
    text: str
    """Words in its place; "": none."""
    n: int
    """Labelled answers with a verdict by both."""
    agreement: float
    """Share of them on which the judge agrees with people now."""
    settled: int
    """Disputed answers on which it agrees now."""
    broken: int
    """Answers on which it agreed before, and does not now."""
    unchanged: float
    """Share of the answers to which the judge gives the same value as before."""

    @property
    def gain(self) -> int:
        return self.settled - self.broken


class Clarification(Struct, frozen=True, kw_only=True):
    """Search for the sentence of a rubric that people and a judge read in two ways."""

    rubric: str
    judge: str
    """Fingerprint of the judge before the change."""
    labelled: int
    """Labelled answers with a verdict."""
    disputed: int
    """Those on which people and the judge differ."""
    examined: int
    """Disputed answers in the half that is learnt from."""
    stricter: int
    """Those of the examined ones to which people give the lower value."""
    sentences: tuple[RubricSentence, ...]
    named: tuple[int, ...] = ()
    """Of each sentence, the number of shown disputed answers that depend on it, according to the model."""
    shown: int = 0
    """Disputed answers that the model was shown."""
    trials: tuple[SentenceTrial, ...] = ()
    best: SentenceTrial | None = None
    """The trial that agrees best with people; None if none agrees better than the rubric as it is."""
    proof: AgreementProof | None = None
    """The best trial on held-out labels."""
    clarified: Rubric | None = None
    """The rubric with the best trial, if the proof shows that it helps."""
