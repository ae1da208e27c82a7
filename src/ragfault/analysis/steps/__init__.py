"""The faulty step of a trace: what each step did, which one failed first, and how sure that is."""

from ragfault.analysis.steps.localization import localize_faulty_steps, localize_recorded_step
from ragfault.analysis.steps.records import FaultyStep, StepFindings, StepSuspect

__all__ = ["FaultyStep", "StepFindings", "StepSuspect", "localize_faulty_steps", "localize_recorded_step"]
