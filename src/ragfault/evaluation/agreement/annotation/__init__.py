"""Annotation: annotators label the items of a trace one at a time."""

from ragfault.evaluation.agreement.annotation.items import (
    ITEM_KINDS,
    AnnotationChoice,
    AnnotationItem,
    AnnotatorAgreement,
    AnnotatorDispute,
    ItemKind,
    create_label,
    describe_verdict,
    list_choices,
    list_items,
    measure_annotators,
)
from ragfault.evaluation.agreement.annotation.session import (
    METRIC_VERDICTS,
    AnnotationSession,
    SuggestedTrace,
    read_suggestions,
    shuffle_ids,
    suggest_traces,
)

__all__ = [
    "ITEM_KINDS",
    "METRIC_VERDICTS",
    "AnnotationChoice",
    "AnnotationItem",
    "AnnotationSession",
    "AnnotatorAgreement",
    "AnnotatorDispute",
    "ItemKind",
    "SuggestedTrace",
    "create_label",
    "describe_verdict",
    "list_choices",
    "list_items",
    "measure_annotators",
    "read_suggestions",
    "shuffle_ids",
    "suggest_traces",
]
