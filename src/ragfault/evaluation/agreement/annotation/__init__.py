"""Annotation: annotators label the items of a trace one at a time."""

from ragfault.evaluation.agreement.annotation.items import (
    ITEM_KINDS,
    AnnotationItem,
    AnnotatorAgreement,
    ItemKind,
    describe_verdict,
    list_choices,
    list_items,
    measure_annotators,
)
from ragfault.evaluation.agreement.annotation.session import (
    AnnotationSession,
    read_suggestions,
    shuffle_ids,
    suggest_traces,
)

__all__ = [
    "ITEM_KINDS", "AnnotationItem", "AnnotationSession", "AnnotatorAgreement", "ItemKind", "describe_verdict",
    "list_choices", "list_items", "measure_annotators", "read_suggestions", "shuffle_ids", "suggest_traces",
]  # fmt: skip
