"""Train the cross-encoder of the judge minilm: a claim is read with its evidence, a query with a passage.

    python -m training.minilm DATA [--minutes 90 | --pairs N] [-o support.pt]
    python -m training.minilm DATA --window 512 --resume packaged --minutes 120 --threads 2 -o strong.pt
    python -m training.minilm DATA --window 512 --resume strong.pt --minutes 120 --threads 2 -o strong.pt
    python training/pack.py support.pt

Needs the dependency group `train` and the published weights of MiniLM-L6 (docs/models.md). The forward pass is in
bfloat16. A round takes every claim of RAGTruth that people marked, 2.2 times as many that they did not,
2,500 altered ones, the claims of AttributionBench, WiCE and BEGIN, and 9,000 queries with passages. Sources are in
one of five folds (CRC-32 of their id): claims are of folds 2 to 4, queries of folds 1 to 4. TREC DL 2019 is never
trained on.

With --window the claims of an answer are read together, with as much of the chunks as fits into so many tokens; the
network then also learns whether any of them is bad. --resume goes on from the weights of an earlier piece, or from
those that the package carries: each piece warms up, comes to rest, and ends in weights that can be used; a piece
draws other rounds than the one before it. At the end the AUROC of
claims of fold 0 is printed; `--minutes 0` prints that of the weights resumed, and trains nothing.

The weights that ragfault carries come of 5,402 seconds on one core of a shared machine: 84,640 pairs, the learning
rate at most 9e-5 for the encoder (its embeddings stay) and 1e-3 for the heads. They were made by scripts that these
modules replace: of the same data, by the same rules, with other draws. A rerun on another machine comes near them
but not to the same, because the learning rate follows the clock. With --pairs it follows the count of pairs, and the
same machine makes the same weights again.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from training.minilm.examples import Example, Reader, examples, validation
from training.minilm.network import Batch, Network, Row, batch, encoded, packaged, restore, state

from ragfault.judges.minilm.encoder import load_tokenizer, locate_weights
from ragfault.stats import auroc

SEED = 0
BATCH, TOKENS_AT_ONCE, SORTED = 32, 8192, 1024
"""Rows and tokens that run together at most, and rows among which those of like length are put together."""
PLAIN = 2.2
"""In a round, so many times as many claims that people did not mark as claims that they did."""
ROUND = {"altered": 2500, "relevance": 9000}
"""In a round at most so many of a kind; of the others all."""
RATE, HEADS = 9e-5, 1e-3
"""The highest learning rates, of the encoder and of the new heads."""
WARM = 0.04
"""In this first share of the training the rates rise; then they fall to nothing."""
DECAY, CLIP = 0.01, 1.0
TOKENS, MARKED, ANY = 0.5, 2.0, 0.5
"""What the tokens count beside the claims, a marked token beside another, and in windows the worst claim."""
RESUMED = 0.5
"""The share of the highest rates that a resumed training has."""
EVERY = 50
"""A line is printed after so many batches."""


def rounds(result: Sequence[Example], split: Tokenizer, window: int | None, seed: int) -> Iterator[Batch]:
    """Yield batches without end, round after round."""
    random = np.random.default_rng(seed)
    kinds: defaultdict[str, list[Example]] = defaultdict(list)
    for first in result:
        kinds[first.kind].append(first)
    most = {**ROUND, "unmarked": int(PLAIN * len(kinds["marked"]))}
    while True:
        taken = [
            content[at]
            for kind, content in kinds.items()
            for at in random.permutation(len(content))[: most.get(kind, len(content))]
        ]
        order = random.permutation(len(taken))
        for start in range(0, len(order), SORTED):
            part = [encoded(taken[at], split, window) for at in order[start : start + SORTED]]
            batches = list(together(part))
            for at in random.permutation(len(batches)):
                yield batch(batches[at])


def together(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows of like length together."""
    group: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.pair.ids)):
        if len(group) == BATCH or (len(group) + 1) * len(row.pair.ids) > TOKENS_AT_ONCE:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def losses(network: Network, first: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how wrong the network is about claims and queries, and about tokens."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, tokens = network(first)
    subjects = logits.gather(1, first.heads[:, None]).squeeze(1).float()
    pairs = loss_of(subjects, first.labels)
    if len(subjects) > len(first.ids):  # some rows have several claims: of each the worst is to be known
        shape = torch.full((len(first.ids),), -30.0)
        worst = shape.scatter_reduce(0, first.owners, subjects, "amax")
        marked = torch.zeros(len(first.ids)).scatter_reduce(0, first.owners, first.labels, "amax")
        pairs = pairs + ANY * loss_of(worst, marked)
    known = first.marks >= 0
    if not known.any():
        return pairs, 0 * tokens.sum()
    return pairs, loss_of(tokens[known].float(), first.marks[known], pos_weight=torch.tensor(MARKED))


def measure(network: Network, result: Sequence[Example], split: Tokenizer, window: int | None) -> None:
    """Print the AUROC of claims that were not trained on: those of RAGTruth, and those of the other sets."""
    network.eval()
    for name, is_other in (("RAGTruth", False), ("others", True)):
        rows = [encoded(example, split, window) for example in result if (example.kind == "other") is is_other]
        values, labels = list[float](), list[float]()
        for first in map(batch, together(rows)):
            with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                values += network(first)[0][:, 0].float().tolist()
            labels += first.labels.tolist()
        area = auroc(np.array(values), np.array(labels)) or float("nan")
        print(f"held out, {name}: {len(labels):,} claims, {np.mean(labels):.3f} bad, AUROC {area:.4f}", flush=True)


def train(network: Network, batches: Iterator[Batch], share: Callable[[int], float], part: float = 1.0) -> int:
    """Train with a `part` of the rates until `share`, asked with the count of pairs, says 1; return that count."""
    heads = [*network.heads.parameters(), *network.token.parameters()]
    body = [weight for weight in network.encoder.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW([{"params": body}, {"params": heads}], weight_decay=DECAY)
    network.train()
    mean, count, begin = float("nan"), 0, time.monotonic()
    for number, first in enumerate(batches):
        done = share(count)
        if done >= 1:
            break
        for group, rate in zip(optimiser.param_groups, (RATE, HEADS), strict=True):
            group["lr"] = part * rate * min(1.0, done / WARM) * (1.0 - done)
        pairs, tokens = losses(network, first)
        (pairs + TOKENS * tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad()
        count += len(first.labels)
        mean = pairs.item() if number == 0 else 0.98 * mean + 0.02 * pairs.item()
        if number % EVERY == 0:
            spent = time.monotonic() - begin
            print(f"{count:,} claims, {spent:.0f} s, {count / spent:.1f}/s, loss {mean:.4f}", flush=True)
    return count


def schedule(minutes: float, pairs: int | None) -> Callable[[int], float]:
    """Return the share of the training that is done, by the count of pairs where one is given, else by the clock."""
    if pairs is not None:
        return lambda count: count / pairs
    if not minutes:
        return lambda _: 1.0
    begin = time.monotonic()
    return lambda _: (time.monotonic() - begin) / (60 * minutes)


def main() -> None:
    """Read the data, train, write."""
    asked = argparse.ArgumentParser(
        prog="python -m training.minilm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("data", type=Path)
    length = asked.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=90.0)
    length.add_argument("--pairs", type=int, help="train on so many pairs, however long that takes")
    asked.add_argument("--window", type=int, help="read claims together, in so many tokens; at most 512")
    asked.add_argument("--resume", help="weights to go on from: a file of an earlier piece, or `packaged`")
    asked.add_argument("--threads", type=int, default=1)
    asked.add_argument("-o", "--out", type=Path, default=Path("support.pt"))
    chosen = asked.parse_args()
    torch.set_num_threads(chosen.threads)
    folder = locate_weights()
    network, seed = Network(folder), SEED
    if chosen.resume == "packaged":
        restore(network, packaged(folder))
    elif chosen.resume:
        restore(network, torch.load(chosen.resume, weights_only=True))
        seed = zlib.crc32(Path(chosen.resume).read_bytes())
    torch.manual_seed(seed)
    split = load_tokenizer(folder)
    reader = Reader(split, chosen.window)
    result = list(examples(chosen.data, reader))
    print(", ".join(f"{count:,} {kind}" for kind, count in Counter(item.kind for item in result).items()), flush=True)
    count = train(
        network,
        rounds(result, split, chosen.window, seed),
        schedule(chosen.minutes, chosen.pairs),
        RESUMED if chosen.resume else 1.0,
    )
    torch.save(state(network), chosen.out)
    print(f"{chosen.out}: {count:,} claims", flush=True)
    measure(network, list(validation(chosen.data, reader)), split, chosen.window)


if __name__ == "__main__":
    main()
