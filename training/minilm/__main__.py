"""Train the cross-encoder of the judge minilm: a claim is read with its evidence, a query with a passage.

    python -m training.minilm DATA [--minutes 90 | --pairs N] [-o support.pt]
    python training/pack.py support.pt

Needs the dependency group `train` and the published weights of MiniLM-L6 (docs/models.md). One core, the forward
pass in bfloat16. A round takes every claim of RAGTruth that people marked, 2.2 times as many that they did not,
2,500 altered ones, the claims of AttributionBench, WiCE and BEGIN, and 9,000 queries with passages. Sources are in
one of five folds (CRC-32 of their id): claims are of folds 2 to 4, queries of folds 1 to 4. TREC DL 2019 is never
trained on.

The weights that ragfault carries come of 5,402 seconds on one core of a shared machine: 84,640 pairs, the learning
rate at most 9e-5 for the encoder (its embeddings stay) and 1e-3 for the heads. They were made by scripts that these
modules replace: of the same data, by the same rules, with other draws. A rerun on another machine comes near them
but not to the same, because the learning rate follows the clock. With --pairs it follows the count of pairs, and the
same machine makes the same weights again.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from training.minilm.examples import Example, examples
from training.minilm.network import Batch, Network, batch, encoded, state

from ragfault.judges.minilm.encoder import load_tokenizer, locate_weights

SEED = 0
BATCH, SORTED = 32, 1024
"""Rows run together, and rows among which those of like length are put together."""
PLAIN = 2.2
"""In a round, so many times as many claims that people did not mark as claims that they did."""
ROUND = {"altered": 2500, "relevance": 9000}
"""In a round at most so many of a kind; of the others all."""
RATE, HEADS = 9e-5, 1e-3
"""The highest learning rates, of the encoder and of the new heads."""
WARM = 0.04
"""In this first share of the training the rates rise; then they fall to nothing."""
DECAY, CLIP = 0.01, 1.0
TOKENS, MARKED = 0.5, 2.0
"""What the tokens count beside the pairs, and a marked token beside another."""
EVERY = 50
"""A line is printed after so many batches."""


def rounds(result: Sequence[Example], split: Tokenizer) -> Iterator[Batch]:
    """Yield batches without end, round after round."""
    random = np.random.default_rng(SEED)
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
            part = [encoded(taken[at], split) for at in order[start : start + SORTED]]
            part.sort(key=lambda row: len(row.pair.ids))
            for at in random.permutation(len(part) // BATCH):
                yield batch(part[at * BATCH : (at + 1) * BATCH])


def losses(network: Network, first: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how wrong the network is about pairs, and about tokens."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, tokens = network(first)
    pairs = loss_of(logits.gather(1, first.heads[:, None]).squeeze(1), first.labels)
    known = first.marks >= 0
    if not known.any():
        return pairs, 0 * tokens.sum()
    return pairs, loss_of(tokens[known], first.marks[known], pos_weight=torch.tensor(MARKED))


def train(network: Network, batches: Iterator[Batch], share: Callable[[int], float]) -> int:
    """Train until `share`, asked with the count of pairs so far, says 1; return that count."""
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
            group["lr"] = rate * min(1.0, done / WARM) * (1.0 - done)
        pairs, tokens = losses(network, first)
        (pairs + TOKENS * tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad()
        count += len(first.labels)
        mean = pairs.item() if number == 0 else 0.98 * mean + 0.02 * pairs.item()
        if number % EVERY == 0:
            spent = time.monotonic() - begin
            print(f"{count:,} pairs, {spent:.0f} s, {count / spent:.1f}/s, loss {mean:.4f}", flush=True)
    return count


def schedule(minutes: float, pairs: int | None) -> Callable[[int], float]:
    """Return the share of the training that is done, by the count of pairs where one is given, else by the clock."""
    if pairs is not None:
        return lambda count: count / pairs
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
    asked.add_argument("-o", "--out", type=Path, default=Path("support.pt"))
    chosen = asked.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    result = list(examples(chosen.data))
    print(", ".join(f"{count:,} {kind}" for kind, count in Counter(item.kind for item in result).items()))
    folder = locate_weights()
    network = Network(folder)
    count = train(network, rounds(result, load_tokenizer(folder)), schedule(chosen.minutes, chosen.pairs))
    torch.save(state(network), chosen.out)
    print(f"{chosen.out}: {count:,} pairs")


if __name__ == "__main__":
    main()
