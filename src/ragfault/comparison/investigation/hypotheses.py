"""Investigation of a run, alone or beside a baseline, without a language model."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ragfault.comparison.bisection import bisect_pairs
from ragfault.comparison.investigation.quotes import quote_examples, quote_problems
from ragfault.comparison.investigation.records import ClaimOrigins, Hypothesis, HypothesisTest, Investigation
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import Bisection, BranchDecision, LayerFault, describe_dependence
from ragfault.comparison.settings import BisectionSettings
from ragfault.diagnosis.causes.selection import select_causes
from ragfault.diagnosis.clusters.description import is_failing
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS, WORDLESS_KINDS
from ragfault.diagnosis.records import Diagnosis, ProblemKind
from ragfault.diagnosis.run_analysis import diagnose_run, find_doubtful_kinds, leave_out
from ragfault.diagnosis.run_table import RunTable, list_text_warnings, open_table
from ragfault.io.runs.run import SAMPLE_TRACES, AnyRun, open_run
from ragfault.io.runs.samples import sample_run
from ragfault.labels.correction import Codes, HumanLabels, Mask
from ragfault.model.errors import UsageError
from ragfault.stats.intervals import mean_interval

MAX_CASES = 5
NO_JUDGE = "no judge looked at them: only failures of the pipeline are known"
FAULTY_SHARE = 0.05
"""Where the share of failing traces may be below this, one run alone shows no fault."""
UNSUPPORTED_KINDS = ("unsupported_claim", "contradicted_claim")
RETRIEVAL_KINDS = ("nothing_retrieved", "nothing_relevant", "missing_context", "uncovered_statement")
"""Problems that say that the chunks did not hold what was asked for; a single irrelevant chunk does not."""


def investigate(
    run: AnyRun,
    baseline: AnyRun | None = None,
    *,
    causes: Sequence[str] = (),
    seed: int = 0,
    sample: int = SAMPLE_TRACES,
    labels: HumanLabels | None = None,
) -> Investigation:
    """Find the root cause of what is wrong with a run, by hypotheses that are tested on what the runs record.

    Beside a baseline each stage that bisection suspects is a hypothesis; its confidence is the probability of the
    stage (calibrated on the fault bench) times 1 − p of the first evidence. Of a run alone each kind of problem is one;
    the verdict is "fault" where it comes first on most failing traces, and its confidence is the lower end of the 95 %
    interval of the share of failing traces on which it comes first.
    With `causes` only those fail whose answer is bad for one of them, and human `labels` of a run alone go before its
    verdicts and causes. Quotes are slices of the recorded texts.

    Of larger runs a random sample of about `sample` traces is investigated, and that is said; 0 takes all.
    Raises what `bisect` raises; UsageError for causes or labels with a baseline, or causes that no answer is bad for.
    """
    candidate = open_run(run)
    if baseline is None:
        return _investigate_alone(RunTable(sample_run(candidate, sample), labels), causes)
    if causes or labels is not None:
        raise UsageError("causes and labels are those of a single run. Leave the baseline out, or both of them.")
    paired = pair_runs(baseline, candidate, anyway=True, sample=sample)
    result = bisect_pairs(paired, BisectionSettings(seed=seed))
    names = [shlex.quote(str(side.path)) for side in paired.runs]
    hypotheses = [hypothesis for fault in result.faults for hypothesis in _list_suspects(fault, result, names)]
    hypotheses += [_describe_decision(decision, names) for decision in result.tree if decision.outcome != "fault"]
    fault = result.faults[0] if result.faults else None
    first = hypotheses[0] if fault else None
    examples = fault.examples if fault else ()
    return Investigation(
        verdict=result.verdict,
        sentence=result.sentence,
        layer=fault.layer if fault else None,
        stage=first.stage if first else None,
        confidence=first.confidence if first else None,
        hypotheses=tuple(hypotheses),
        quotes=tuple(quote_examples(paired, examples)) if fault else (),
        fix=fault.remedies if fault else (),
        fix_test=_build_fix_test(fault, names) if fault else (),
        cases=tuple(example.trace for example in examples)[:MAX_CASES],
        origins=measure_claim_origins(paired.runs[1]),
        warnings=(
            *result.comparison.warnings,
            *(m.sentence for m in result.comparison.mismatches if m.sentence not in result.sentence),
        ),
    )


def _list_suspects(fault: LayerFault, result: Bisection, names: Sequence[str]) -> list[Hypothesis]:
    """Return a hypothesis for each stage that a fault may lie in, the most credible first."""
    why = next((decision.why for decision in result.tree if decision.branch == fault.branch), fault.title)
    shared = HypothesisTest(command=f"ragfault bisect {' '.join(names)}", outcome="supports", reason=why)
    certainty = 1.0 - (fault.evidence[0].adjusted or 0.0) if fault.evidence else 1.0
    hypotheses = []
    for suspect in fault.suspects:
        confidence = suspect.probability * certainty
        outcome: Literal["supported", "possible"] = "supported" if confidence >= 0.5 else "possible"
        seen = HypothesisTest(
            command=f"ragfault bisect {' '.join(names)} --json",
            outcome="cannot tell" if suspect.evidence.startswith("no specific") else "supports",
            reason=suspect.evidence,
        )
        hypotheses.append(
            Hypothesis(
                layer=fault.layer,
                stage=suspect.stage,
                text=f"{suspect.stage}: {fault.title}",
                outcome=outcome,
                confidence=confidence,
                tests=(shared, seen),
            )
        )
    return hypotheses or [
        Hypothesis(
            layer=fault.layer, stage=None, text=fault.title, outcome="supported", confidence=certainty, tests=(shared,)
        )
    ]


def _describe_decision(decision: BranchDecision, names: Sequence[str]) -> Hypothesis:
    """Return the hypothesis of a branch of the tree that is no fault."""
    ruled_out = decision.outcome == "ruled out"
    test = HypothesisTest(
        command=f"ragfault bisect {' '.join(names)}",
        outcome="contradicts" if ruled_out else "cannot tell",
        reason=decision.why,
    )
    return Hypothesis(
        layer=decision.layer,
        stage=None,
        text=decision.branch,
        outcome="ruled out" if ruled_out else "cannot tell",
        confidence=None,
        tests=(test,),
    )


def _build_fix_test(fault: LayerFault, names: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that keep the example traces as cases, and pass once what fell is back."""
    baseline, candidate = names
    ids = " ".join(f"--trace {shlex.quote(example.trace)}" for example in fault.examples[:MAX_CASES])
    commands = [f"ragfault promote {candidate} {ids} -o cases.jsonl"] if ids else []
    if fault.evidence and fault.evidence[0].baseline is not None:
        change = fault.evidence[0]
        sign, way = (">=", -1) if change.better == "higher" else ("<=", 1)
        name = change.metric.partition(" ")[0]
        threshold = f"{name}{sign}{(change.baseline or 0.0) + way * change.margin:.3g}"
        return (*commands, f"ragfault gate FIXED --baseline {baseline} --threshold {shlex.quote(threshold)}")
    return (*commands, f"ragfault gate FIXED --baseline {baseline}")


def _investigate_alone(table: RunTable, causes: Sequence[str]) -> Investigation:
    """Investigate a run without a baseline: the first problem of each failing trace, or of those with these causes."""
    run = table.run
    chosen = {cause.trace for cause in select_causes(table, causes)} if causes else None
    diagnoses = list(diagnose_run(table))
    left_out = find_doubtful_kinds([run], [diagnoses])
    diagnoses = [leave_out(diagnosis, left_out) for diagnosis in diagnoses]
    failing = [item for item in diagnoses if is_failing(item) and (chosen is None or item.trace in chosen)]
    first = {diagnosis.trace: _first_problem(diagnosis) for diagnosis in failing}
    counts = Counter(first.values())
    name = shlex.quote(str(run.path))
    clusters = table.clusters
    fails = np.array([diagnosis.trace in first for diagnosis in diagnoses])
    kinds = np.array(list(first.values()))
    groups = None if clusters is None else clusters[fails]
    hypotheses = [_describe_kind(kind, kinds == kind, groups, name) for kind, _ in counts.most_common()]
    interval = mean_interval(fails.astype(float), clusters, bounds=(0, 1))
    top = counts.most_common(1)[0][0] if counts and (causes or interval.low > FAULTY_SHARE) else None
    warnings = list_text_warnings(run)
    doubts = () if top in WORDLESS_KINDS else warnings
    is_shown = top is not None and hypotheses[0].outcome == "supported" and not doubts
    cases = [trace for trace, kind in first.items() if kind == top][:MAX_CASES]
    facts = (describe_dependence(len(diagnoses), [interval]), NO_JUDGE if run.manifest.judge.startswith("none") else "")
    sample = f" of a random sample of {run.manifest.population:,}" if run.manifest.population else ""
    named = f" for the cause {' or '.join(causes)}" if causes else ""
    notes = "".join(f" ({fact})" for fact in facts if fact)
    share = f"{len(first):,} of {len(diagnoses):,} traces{sample} fail{named}{notes}"
    if top is None:
        sentence = f"{share}: no fault is shown in a single run; give a --baseline to find what got worse."
    else:
        sentence = f"{share}; what comes first most often, on {counts[top]:,} of them: {PROBLEM_KINDS[top].title}."
        sentence += f" This may not be so: {'; '.join(doubts)}." if doubts else ""
    ids = " ".join(f"--trace {shlex.quote(case)}" for case in cases)
    return Investigation(
        verdict="fault" if is_shown else "cannot tell",
        sentence=sentence,
        layer=PROBLEM_KINDS[top].layer if top and is_shown else None,
        stage=None,
        confidence=hypotheses[0].confidence if is_shown else None,
        hypotheses=tuple(hypotheses),
        quotes=tuple(quote_problems(run, [diagnosis for diagnosis in diagnoses if diagnosis.trace in cases], top)),
        fix=PROBLEM_KINDS[top].steps if top else (),
        fix_test=(f"ragfault promote {name} {ids} -o cases.jsonl", f"ragfault investigate FIXED --baseline {name}")
        if top
        else (),
        cases=tuple(cases),
        origins=measure_claim_origins(table),
        warnings=() if top and doubts else warnings,
    )


def _first_problem(diagnosis: Diagnosis) -> ProblemKind:
    """Return the problem of a failing trace that lies first in the pipeline; single irrelevant chunks come last."""
    kinds = [problem.kind for problem in diagnosis.problems]
    return next((kind for kind in kinds if kind != "irrelevant_chunk"), kinds[0])


def _describe_kind(kind: ProblemKind, comes_first: Mask, clusters: Codes | None, name: str) -> Hypothesis:
    low = mean_interval(comes_first.astype(float), clusters, bounds=(0, 1)).low
    definition = PROBLEM_KINDS[kind]
    test = HypothesisTest(
        command=f"ragfault diagnose {name}",
        outcome="supports" if low >= 0.5 else "cannot tell",
        reason=f"comes first on {comes_first.sum():,} of {len(comes_first):,} failing traces",
    )
    return Hypothesis(
        layer=definition.layer,
        stage=None,
        text=definition.title,
        outcome="supported" if low >= 0.5 else "possible",
        confidence=low,
        tests=(test,),
    )


def measure_claim_origins(source: AnyRun | RunTable) -> ClaimOrigins | None:
    """Return the share of the unsupported claims of a run that stand where retrieval had failed before.

    An association by trace, by the verdicts of the judge (gold where there is some): the answer would have needed
    chunks that were not there. None where the run has no unsupported or contradicted claim.
    """
    table = open_table(source)
    values: list[float] = []
    rows: list[int] = []
    others: list[float] = []
    for row, diagnosis in enumerate(diagnose_run(table)):
        kinds = [problem.kind for problem in diagnosis.problems]
        failed = float(any(kind in RETRIEVAL_KINDS for kind in kinds))
        count = sum(kind in UNSUPPORTED_KINDS for kind in kinds)
        values += [failed] * count
        rows += [row] * count
        if not count:
            others.append(failed)
    if not values:
        return None
    clusters = table.clusters
    return ClaimOrigins(
        claims=len(values),
        traces=len(set(rows)),
        from_retrieval=mean_interval(values, rows if clusters is None else clusters[rows], bounds=(0.0, 1.0)),
        without_fault=sum(others) / len(others) if others else None,
    )
