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

from benchmarks.judge import is_reserved, rows, trace

from ragfault.judges import load_judge
from ragfault.judges.domain.identifiers import explain_query_conflict
from ragfault.judges.domain.profile import PROFILES, load_profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    folder = parser.parse_args().data
    retained = [row for row in rows(folder, "ragtruth_train") if is_reserved(row)]
    traces = [trace(row) for row in retained]
    start = time.process_time()
    plain = load_judge("lexical").observe(traces)
    once = time.process_time() - start
    pairs = rows(folder, "wikiqa")
    print(f"{len(retained)} answers, {sum(len(item.claim or ()) for item in plain)} claims; {len(pairs)} sentences")
    for name in PROFILES:
        profile = load_profile(name)
        start = time.process_time()
        seen = load_judge("lexical", profile=name).observe(traces)
        seconds = time.process_time() - start
        changed = [
            (now.p > claim.p, any(claim.start < span["end"] and span["start"] < claim.end for span in row["spans"]))
            for row, item, other in zip(retained, plain, seen, strict=True)
            for claim, now in zip(item.claim or (), other.claim or (), strict=True)
            if now.support != claim.support and "threshold of the domain profile" not in (now.reason or "")
        ]
        lowered = [marked for up, marked in changed if not up]
        raised = [marked for up, marked in changed if up]
        refused = [
            float(row["label"]) > 0 for row in pairs if explain_query_conflict(profile, row["query"], row["passage"])
        ]
        print(
            f"{name:10} lowers {len(lowered)} claims, {sum(lowered)} marked; raises {len(raised)}, {sum(raised)} marked"
            f"; refuses {len(refused)} sentences, {sum(refused)} answers; {seconds / once:.2f} times the time"
        )


if __name__ == "__main__":
    main()
