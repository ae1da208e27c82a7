"""Trains an encoder in pieces: python -m training.encoder.train DATA BASE START STATE --minutes 20.

BASE is the folder with `config.json` and `tokenizer.json` of the base model. With `--model multilingual` the second
model is trained, from the base and the start that `training.encoder.base` wrote.

A piece resumes from the full-precision state that the piece before it left. Sources are read anew at each piece, so
that texts that were written meanwhile take part.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from ragfault.judges.encoder.model import ENGLISH, MULTILINGUAL
from training.encoder.model import HEADS, Encoder, read_configuration
from training.encoder.rows import NOT_FIRST, SOURCES, Pair, is_measured

# The multilingual model begins untrained, in blocks of 4 bits.
RATE = {ENGLISH: 8e-5, MULTILINGUAL: 1.2e-4}
WARM_UP = 4_000
# Of the full rate, what remains at the end.
LEAST_RATE = 0.02
BATCH = 16
# Batches of this many pairs are drawn together and sorted by length, so that little is padded.
POOL = 128 * BATCH
LENGTH = 192
AVERAGE = 0.9985
SMOOTHING = 0.03
FROZEN_LAYERS = {ENGLISH: 2, MULTILINGUAL: 3}
# Where the processor has no instructions for them, 16-bit floats are some fifteen times slower than 32-bit ones.
HAS_BFLOAT16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
# A source with fewer pairs than its share of this many is drawn less often, so that it is not learned by heart.
ENOUGH = {ENGLISH: 20_000, MULTILINGUAL: 12_000}


def load_sources(data: Path, model: str) -> dict[str, list[Pair]]:
    """Return the training pairs of every source, without the groups that are held out."""
    sources = {
        name: [pair for pair in read(data) if not is_measured(pair.group)] for name, (read, _) in SOURCES[model].items()
    }
    for name, pairs in sources.items():
        # The same claim under other passages comes next to it, so that a batch has both.
        pairs.sort(key=lambda pair: zlib.crc32(f"{pair.group} {pair.second}".encode()))
        print(f"{name}: {len(pairs):,} pairs", flush=True)
    return {name: pairs for name, pairs in sources.items() if pairs}


def draw_batches(sources: dict[str, list[Pair]], places: dict[str, int], seed: int, model: str) -> Iterator[list[Pair]]:
    """Yield batches without end: pools drawn by the shares of the sources, cut by length, in random order."""
    chance = random.Random(seed)
    names = list(sources)
    aimed = {name: share for name, (_, share) in SOURCES[model].items()}
    shares = [aimed[name] * min(1.0, len(sources[name]) / (ENOUGH[model] * aimed[name])) for name in names]
    while True:
        pool = []
        for name in chance.choices(names, shares, k=POOL):
            place = places.get(name, 0)
            pool.append(sources[name][place % len(sources[name])])
            places[name] = place + 1
        pool.sort(key=lambda pair: len(pair.first) + len(pair.second))
        batches = [pool[place : place + BATCH] for place in range(0, POOL, BATCH)]
        chance.shuffle(batches)
        yield from batches


def load_tokenizer(base: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a base."""
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(base / "tokenizer.json"), model_input_names=names)
    # The padding of both vocabularies has the number that the configuration says; its name does not matter.
    padding = read_configuration(base).pad_token_id
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding)
    return tokenizer


def encoded(tokenizer: PreTrainedTokenizerFast, pairs: list[Pair]) -> tuple[Tensor, Tensor, Tensor]:
    """Return token ids, mask and kinds of a batch."""
    batch = tokenizer(
        [pair.second for pair in pairs],
        [pair.first for pair in pairs],
        truncation="longest_first",
        max_length=LENGTH,
        padding=True,
        return_tensors="pt",
    )
    return batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]


def batch_loss(outputs: dict[str, Tensor], pairs: list[Pair]) -> Tensor:
    """Return the mean loss over a batch; rows known not to be of the first class are pushed away from it."""
    losses = []
    for head in HEADS:
        rows = [place for place, pair in enumerate(pairs) if pair.head == head]
        if not rows:
            continue
        logarithms = torch.log_softmax(outputs[head].float()[rows], dim=-1)
        labels = torch.tensor([pairs[place].label for place in rows])
        known = labels != NOT_FIRST
        if known.any():
            picked = logarithms[known].gather(1, labels[known].unsqueeze(1)).squeeze(1)
            losses.append(-(1 - SMOOTHING) * picked - SMOOTHING * logarithms[known].mean(1))
        if (~known).any():
            losses.append(-torch.log1p(-logarithms[~known][:, 0].exp().clamp(max=1 - 1e-4)))
    return torch.cat(losses).mean()


class Training:
    """The model, its running average, the optimiser and the places in the sources."""

    def __init__(self, base: Path, start: Path, state: Path, model: str) -> None:
        self.rate = RATE[model]
        self.path = state / "state.pt"
        self.seen = 0
        self.places: dict[str, int] = {}
        if self.path.exists():
            saved = torch.load(self.path, weights_only=False)
            self.model = Encoder(read_configuration(base))
            self.model.load_state_dict(saved["model"])
            self.average = saved["average"]
            self.seen, self.places = saved["seen"], saved["places"]
        else:
            self.model = Encoder.from_start(base, start)
            self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        # Word vectors and the layers next to them stay as they came from far more text: a third more pairs a second.
        self.model.encoder.embeddings.requires_grad_(False)
        self.model.encoder.encoder.layer[: FROZEN_LAYERS[model]].requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            [value for value in self.model.parameters() if value.requires_grad], lr=self.rate, weight_decay=0.01
        )
        if self.path.exists():
            self.optimizer.load_state_dict(saved["optimizer"])

    def step(self, tokenizer: PreTrainedTokenizerFast, pairs: list[Pair], end: int) -> float:
        """Take one step of the optimiser and return the loss; the rate falls in a line to almost none at `end`."""
        rate = self.rate * min(1.0, (self.seen + BATCH) / WARM_UP, max(LEAST_RATE, 1 - self.seen / end))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HAS_BFLOAT16):
            outputs = self.model(*encoded(tokenizer, pairs))
        loss = batch_loss(outputs, pairs)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.seen += len(pairs)
        keep = min(AVERAGE, self.seen / (self.seen + 10 * BATCH))
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                if value.requires_grad:
                    self.average[name].mul_(keep).add_(value, alpha=1 - keep)
        return loss.item()

    def save(self) -> None:
        """Write the state under a temporary name, then rename it."""
        partial = self.path.with_suffix(".partial")
        torch.save(
            {
                "model": self.model.state_dict(),
                "average": self.average,
                "optimizer": self.optimizer.state_dict(),
                "seen": self.seen,
                "places": self.places,
            },
            partial,
        )
        partial.rename(self.path)


def main() -> None:
    """Train for some minutes and leave the state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--model", choices=[ENGLISH, MULTILINGUAL], default=ENGLISH)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--end", type=int, default=420_000, help="pairs after which the training is done")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.state.mkdir(parents=True, exist_ok=True)
    training = Training(options.base, options.start, options.state, options.model)
    tokenizer = load_tokenizer(options.base)
    torch.manual_seed(training.seen)
    sources = load_sources(options.data, options.model)
    batches = draw_batches(sources, training.places, training.seen, options.model)
    training.model.train()
    start = printed = time.time()
    running = math.nan
    first = training.seen
    while time.time() - start < options.minutes * 60:
        loss = training.step(tokenizer, next(batches), options.end)
        running = loss if math.isnan(running) else 0.99 * running + 0.01 * loss
        if time.time() - printed > 60:
            printed = time.time()
            speed = (training.seen - first) / (printed - start)
            line = {"seen": training.seen, "loss": round(running, 4), "pairs_per_second": round(speed, 1)}
            print(json.dumps(line), flush=True)
    training.save()
    print(json.dumps({"seen": training.seen, "loss": round(running, 4)}), flush=True)


if __name__ == "__main__":
    main()
