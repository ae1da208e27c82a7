"""Measure how often a domain profile changes verdicts outside of its domain, and how often people agree with it.

    python -m benchmarks.domain_profiles DATA_FOLDER

Of the claims of RAGTruth (sources that the judge was not fitted on): how many the profile lowered for an identifier
or raised for another spelling, and how many of those people had marked. Of the sentences of WikiQA: how many it
refused, and how many of those people had marked as answers. Neither is of the domain of a profile.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.datasets import build_trace, is_marked, is_reserved, read_rows
from ragfault.judges.domain.identifiers import explain_query_conflict
from ragfault.judges.domain.profile import PROFILES, load_profile
from ragfault.judges.loading import load_judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    folder = parser.parse_args().data
    reserved = [row for row in read_rows(folder, "ragtruth_train") if is_reserved(row)]
    traces = [build_trace(row) for row in reserved]
    start = time.process_time()
    plain_verdicts = load_judge("lexical").observe(traces)
    plain_seconds = time.process_time() - start
    pairs = read_rows(folder, "wikiqa")
    claims = sum(len(verdicts.claim or ()) for verdicts in plain_verdicts)
    print(f"{len(reserved)} answers, {claims} claims; {len(pairs)} sentences")
    for name in PROFILES:
        profile = load_profile(name)
        start = time.process_time()
        profile_verdicts = load_judge("lexical", profile=name).observe(traces)
        seconds = time.process_time() - start
        changed = [
            (changed_claim.p > claim.p, is_marked(claim, row))
            for row, item, profile_verdict in zip(reserved, plain_verdicts, profile_verdicts, strict=True)
            for claim, changed_claim in zip(item.claim or (), profile_verdict.claim or (), strict=True)
            if changed_claim.support != claim.support
            and "threshold of the domain profile" not in (changed_claim.reason or "")
        ]
        lowered = [marked for up, marked in changed if not up]
        raised = [marked for up, marked in changed if up]
        refused = [
            float(row["label"]) > 0 for row in pairs if explain_query_conflict(profile, row["query"], row["passage"])
        ]
        print(
            f"{name:10} lowers {len(lowered)} claims, {sum(lowered)} marked; raises {len(raised)}, {sum(raised)} marked"
            f"; refuses {len(refused)} sentences, {sum(refused)} answers; {seconds / plain_seconds:.2f} times the time"
        )


if __name__ == "__main__":
    main()
