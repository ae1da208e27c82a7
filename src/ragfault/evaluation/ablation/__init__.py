"""Ablation: decide which part of a RAG system made a change by swapping parts between two systems."""

from ragfault.evaluation.ablation.answer_replay import replay
from ragfault.evaluation.ablation.experiment import DEFAULT_METRICS, ablate
from ragfault.evaluation.ablation.parts import (
    Ablation,
    MetricAttribution,
    PartEffect,
    System,
    SystemConfiguration,
    SystemPart,
    generator,
    retriever,
)

__all__ = [
    "DEFAULT_METRICS",
    "Ablation",
    "MetricAttribution",
    "PartEffect",
    "System",
    "SystemConfiguration",
    "SystemPart",
    "ablate",
    "generator",
    "replay",
    "retriever",
]
