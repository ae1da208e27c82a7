"""Isolation: which part of a RAG system made the change, decided by swapping parts between two systems."""

from ragfault.isolation.experiment import METRICS, isolate
from ragfault.isolation.parts import Step, System, generator, retriever
from ragfault.isolation.records import Attribution, Configuration, Effect, Isolation
from ragfault.isolation.replaying import replay

__all__ = [
    "METRICS",
    "Attribution",
    "Configuration",
    "Effect",
    "Isolation",
    "Step",
    "System",
    "generator",
    "isolate",
    "replay",
    "retriever",
]
