"""Ablation: decide which part of a RAG system made a change by swapping parts between two systems."""

from ragfault.evaluation.ablation.answer_replay import replay
from ragfault.evaluation.ablation.experiment import ablate
from ragfault.evaluation.ablation.parts import Ablation, MetricAttribution, PartEffect, generator, retriever
from ragfault.evaluation.ablation.step_repair import StepRepairs, repair_steps

__all__ = [
    "Ablation", "MetricAttribution", "PartEffect", "StepRepairs", "ablate", "generator", "repair_steps", "replay",
    "retriever",
]  # fmt: skip
