"""Evaluation sets: questions with gold spans made from a corpus, checked, described, and kept valid as it changes."""

from ragfault.testsets.anchors import RefreshResult, refresh_testset
from ragfault.testsets.answerability import score_answerability
from ragfault.testsets.audit import AuditFinding, CorpusAudit, audit_corpus
from ragfault.testsets.description import TestsetDescription, describe_testset
from ragfault.testsets.making.make import make_testset
from ragfault.testsets.making.wording import QueryStyle, fit_style
from ragfault.testsets.records import TestsetResult

__all__ = [
    "AuditFinding", "CorpusAudit", "QueryStyle", "RefreshResult", "TestsetDescription", "TestsetResult",
    "audit_corpus", "describe_testset", "fit_style", "make_testset", "refresh_testset", "score_answerability",
]  # fmt: skip
