"""Train the encoder of the judge minilm on claims with their evidence, with what two larger encoders say of them.

    python training/minilm/distillation.py pairs.npz BASES -o OUT [--teacher 32] [--student 78]

Needs torch and numpy alone, and a GPU to be quick; seconds are given for each part of the training. BASES holds
`student.npz` and `teacher.npz`, as `python -m training.minilm.bases` writes them. Two teachers (MPNet, 110 million
weights) each learn from half of the sources, and say of the other half, which they have not seen, how likely each
claim and each token is bad: labels of people have errors, and of claims with evidence left out there are none. The
student learns from the mean of label and teacher. Writes the weights of the student in 16-bit floats (in files of at
most 15 MB), and what teachers and student say of claims that none was trained on. The learning rate follows the
clock: a rerun comes near the packaged weights, but not to the same.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH = {"teacher": 96, "student": 192}
RATE = {"teacher": 6e-5, "student": 1.5e-4}
HEADS_RATE = 1e-3
EPOCHS = {"teacher": 4, "student": 14}
"""Rounds at most; the seconds may end the training before."""
PLAIN = {"teacher": 2.5, "student": 5.0}
"""In a round, so many times as many claims that people let stand as claims that they marked."""
WARM, DECAY, CLIP, DROPOUT = 0.05, 0.01, 1.0, 0.1
TOKENS = 0.6
"""What the tokens count beside the claims."""
MARKED = 2.0
"""What a bad claim or token counts beside another."""
BLEND = 0.5
"""The share of the teacher in what the student learns."""
REPEATED = 2
"""The smaller sets are seen so many times in a round."""
SORTED = 32
"""Batches among which rows of like length are put together."""
HALVES = ((1, 2), (3, 4))
"""The folds that each teacher learns from."""
HUMAN, ALTERED, HIDDEN = 0, 1, 2
"""Kinds of pairs, see pairs.py."""
HEAD_COUNT = 12
START, END, OFFSET = 101, 102, 4
"""Tokens that open a pair and end each text; the teacher has 0 and 2 for them, and other words that much later."""
MAX_FILE_BYTES = 15_000_000

Array = np.ndarray[Any, Any]


class Encoder(nn.Module):
    """A BERT, or an MPNet where there is a relative bias; a vector for each token, then three numbers."""

    def __init__(self, weights: dict[str, Array]) -> None:
        super().__init__()
        # the names of modules have no points
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(torch.tensor(array.astype(np.float32)))
                for name, array in weights.items()
            }
        )
        self.weights["word"].requires_grad = False
        self.layer_count = 1 + max(int(name.split(".")[0]) for name in weights if name[0].isdigit())
        self.width = weights["word"].shape[1]
        self.is_relative = "relative" in weights
        self.epsilon = 1e-5 if self.is_relative else 1e-12
        self.out = nn.Linear(self.width, 3)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(self.out.bias)

    def norm(self, hidden: Tensor, name: str) -> Tensor:
        """Return a layer norm."""
        weights = self.weights
        return functional.layer_norm(hidden, (self.width,), weights[name + "/w"], weights[name + "/b"], self.epsilon)

    def linear(self, hidden: Tensor, name: str) -> Tensor:
        """Return a matrix and a bias."""
        return functional.linear(hidden, self.weights[name + "/w"].t(), self.weights[name + "/b"])

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
        """Return for each token its badness, its part in that of its claim, and the part of an opening token."""
        weights, (rows, length) = self.weights, ids.shape
        dropout = DROPOUT if self.training else 0.0
        positions = torch.arange(length, device=ids.device) + (2 if self.is_relative else 0)
        hidden = functional.embedding(ids, weights["word"]) + functional.embedding(positions, weights["place"])
        if not self.is_relative:
            hidden = hidden + functional.embedding(kinds, weights["kind"])
        hidden = functional.dropout(self.norm(hidden, "norm"), dropout, self.training)
        bias = torch.where(mask[:, None, None, :], 0.0, -1e4)
        if self.is_relative:
            bias = bias + self.relative(length, ids.device)
        for number in range(self.layer_count):
            at = f"{number}/"
            parts = self.linear(hidden, at + "qkv").view(rows, length, 3, HEAD_COUNT, -1)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=bias.to(value.dtype).expand(rows, HEAD_COUNT, length, length),
                dropout_p=dropout,
            )
            mixed = self.linear(mixed.transpose(1, 2).reshape(rows, length, self.width), at + "out")
            hidden = self.norm(hidden + functional.dropout(mixed, dropout, self.training), at + "n1")
            inner = self.linear(functional.gelu(self.linear(hidden, at + "up")), at + "down")
            hidden = self.norm(hidden + functional.dropout(inner, dropout, self.training), at + "n2")
        return self.out(hidden).float()

    def relative(self, length: int, device: torch.device) -> Tensor:
        """Return the bias of each head by distance, in 32 buckets (the paper of T5)."""
        positions = torch.arange(length, device=device)
        distance = positions[:, None] - positions[None, :]
        is_later, size = (distance < 0).long() * 16, distance.abs()
        large = 8 + (torch.log(size.float().clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
        buckets = is_later + torch.where(size < 8, size, large.clamp(max=15))
        return functional.embedding(buckets, self.weights["relative"]).permute(2, 0, 1)[None]


class Batch(NamedTuple):
    """Pairs on the device."""

    ids: Tensor
    mask: Tensor
    kinds: Tensor
    marks: Tensor
    """The number of each token of the claims among all; -1 of others."""
    rows: Tensor


class Data:
    """All pairs, with targets that a teacher can change."""

    def __init__(self, path: Path, device: torch.device) -> None:
        with np.load(path) as packed:
            self.raw = {name: packed[name] for name in packed.files}
        self.device = device
        self.ids = torch.tensor(self.raw["ids"].astype(np.int32), device=device)
        self.sizes = np.diff(self.raw["ids_at"])
        self.claims = torch.tensor(self.raw["label"].astype(np.float32), device=device)
        self.marks = torch.tensor(self.raw["marks"].astype(np.float32), device=device)

    def chosen(self, kinds: tuple[int, ...], ragtruth: tuple[int, ...], others: tuple[int, ...]) -> Array:
        """Return the rows of some kinds, of some folds of RAGTruth, and of some of the other sets."""
        raw = self.raw
        inside = np.where(raw["set"] == 0, np.isin(raw["fold"], ragtruth), np.isin(raw["fold"], others))
        return np.flatnonzero(inside & np.isin(raw["kind"], kinds))

    def batch(self, rows: Array, is_relative: bool) -> Batch:
        """Return rows as tensors, padded to the longest."""
        raw, device = self.raw, self.device
        length = int(-(-self.sizes[rows].max() // 8) * 8)
        places = torch.arange(length, device=device)
        begin = torch.tensor(raw["ids_at"][rows], device=device)[:, None]
        mask = places[None] < torch.tensor(self.sizes[rows], device=device)[:, None]
        ids = self.ids[torch.where(mask, begin + places, 0)].long()
        if is_relative:
            ids = torch.where(ids == START, 0, torch.where(ids == END, 2, ids + OFFSET))
        ids = torch.where(mask, ids, 1 if is_relative else 0)
        first = torch.tensor(raw["first_length"][rows].astype(np.int64), device=device)[:, None]
        is_claim = (places[None] > 0) & (places[None] < first - 1)
        marks = torch.where(is_claim, torch.tensor(raw["marks_at"][rows], device=device)[:, None] + places - 1, -1)
        return Batch(ids, mask, ((places[None] >= first) & mask).long(), marks, torch.tensor(rows, device=device))

    def round(self, rows: Array, part: str, random: np.random.Generator) -> Array:
        """Return the rows of a round: of the claims of RAGTruth that people let stand only some."""
        raw = self.raw
        human = (raw["set"][rows] == 0) & (raw["kind"][rows] == 0)
        plain, marked = rows[human & (raw["label"][rows] == 0)], human & (raw["label"][rows] == 1)
        some = random.permutation(plain)[: int(PLAIN[part] * marked.sum())]
        return np.concatenate([some, rows[~human], rows[marked], *[rows[raw["set"][rows] > 0]] * (REPEATED - 1)])

    def batches(self, rows: Array, size: int, random: np.random.Generator) -> Iterator[Array]:
        """Yield the rows of each batch of a round."""
        order = random.permutation(rows)
        for start in range(0, len(order), size * SORTED):
            part = order[start : start + size * SORTED]
            part = part[np.argsort(self.sizes[part], kind="stable")]
            pieces = [part[at : at + size] for at in range(0, len(part), size)]
            for at in random.permutation(len(pieces)):
                yield pieces[at]


def read(network: Encoder, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logit of each claim and of each token."""
    with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
        values = network(batch.ids, batch.mask, batch.kinds)
    own = (batch.mask & (batch.kinds == 0)).float()
    return (values[..., 1] * own).sum(1) / own.sum(1) + values[:, 0, 2], values[..., 0]


def losses(network: Encoder, batch: Batch, data: Data) -> Tensor:
    """Return how wrong the network is about claims and tokens."""
    claims, tokens = read(network, batch)
    weight = torch.tensor(MARKED, device=claims.device)
    target = data.claims[batch.rows]
    known = (target >= 0).float()
    claim_losses = functional.binary_cross_entropy_with_logits(
        claims, target.clamp(min=0), pos_weight=weight, reduction="none"
    )
    inside = batch.marks >= 0
    marks = torch.where(inside, data.marks[batch.marks.clamp(min=0)], -1.0)
    marked = (marks >= 0).float()
    token_losses = functional.binary_cross_entropy_with_logits(
        tokens, marks.clamp(min=0), pos_weight=weight, reduction="none"
    )
    return (claim_losses * known).sum() / known.sum().clamp(min=1) + TOKENS * (
        token_losses * marked
    ).sum() / marked.sum().clamp(min=1)


def train(network: Encoder, data: Data, rows: Array, part: str, seconds: float, seed: int) -> None:
    """Train for rounds or seconds, whichever ends first."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    size, begin = BATCH[part], time.monotonic()
    steps = EPOCHS[part] * (len(data.round(rows, part, random)) // size + 1)
    heads = list(network.out.parameters())
    body = [weight for weight in network.weights.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in body if weight.ndim > 1], "weight_decay": DECAY},
        {"params": [weight for weight in body if weight.ndim == 1], "weight_decay": 0.0},
        {"params": heads, "weight_decay": DECAY},
    ]
    optimiser = torch.optim.AdamW(groups, lr=1e-4, fused=data.device.type == "cuda")
    network.train()
    step, mean = 0, float("nan")
    while True:
        for chosen in data.batches(data.round(rows, part, random), size, random):
            done = max(step / steps, (time.monotonic() - begin) / seconds)
            if done >= 1:
                print(f"{part}: {step} of {steps} steps, {time.monotonic() - begin:.0f} s, loss {mean:.4f}", flush=True)
                return
            for number, group in enumerate(optimiser.param_groups):
                group["lr"] = (HEADS_RATE if number == 2 else RATE[part]) * min(1.0, done / WARM) * (1.0 - done)
            loss = losses(network, data.batch(chosen, network.is_relative), data)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            if step % 50 == 0:
                value = loss.item()
                mean = value if step == 0 else 0.8 * mean + 0.2 * value
                print(f"{part} {step}/{steps} {time.monotonic() - begin:.0f} s loss {mean:.4f}", flush=True)
            step += 1


@torch.inference_mode()
def tell(network: Encoder, data: Data, rows: Array) -> tuple[Tensor, Tensor]:
    """Return logits of all claims and tokens; nan for rows that were not asked for."""
    network.eval()
    claims, tokens = torch.full_like(data.claims, math.nan), torch.full_like(data.marks, math.nan)
    ordered = rows[np.argsort(data.sizes[rows], kind="stable")]
    for start in range(0, len(ordered), 384):
        batch = data.batch(ordered[start : start + 384], network.is_relative)
        claim_logits, token_logits = read(network, batch)
        claims[batch.rows] = claim_logits
        inside = batch.marks >= 0
        tokens[batch.marks[inside]] = token_logits[inside]
    return claims, tokens


def area(scores: Array, labels: Array) -> float:
    """Return the AUROC."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    good, bad = (labels == 0).sum(), (labels == 1).sum()
    return float((ranks[labels == 1].sum() - bad * (bad + 1) / 2) / max(1, good * bad))


def report(name: str, data: Data, claims: Tensor, rows: Array) -> None:
    """Print the AUROC of claims of each set, and of RAGTruth's answers by their worst claim."""
    raw, logits = data.raw, claims.float().cpu().numpy()
    for number in np.unique(raw["set"][rows]):
        part = rows[raw["set"][rows] == number]
        known = part[raw["label"][part] >= 0]
        names, answers = np.unique(raw["id"][part], return_inverse=True)
        worst, bad = np.full(len(names), -99.0), np.zeros(len(names))
        np.maximum.at(worst, answers, logits[part])
        np.maximum.at(bad, answers, raw["label"][part])
        print(f"{name} set {number}: {len(known)} claims AUROC {area(logits[known], raw['label'][known]):.4f}; "
              f"{len(names)} answers AUROC {area(worst, bad):.4f}", flush=True)  # fmt: skip


def save(network: Encoder, folder: Path) -> None:
    """Write what was trained, in 16-bit floats, in files of limited size."""
    trained = {name.replace("/", "."): weight for name, weight in network.weights.items() if weight.requires_grad}
    files: list[dict[str, Array]] = [{}]
    size = 0
    for name, weight in {**trained, "out.w": network.out.weight.t(), "out.b": network.out.bias}.items():
        array = weight.detach().cpu().numpy().astype(np.float16 if weight.numel() > 5000 else np.float32)
        if size + array.nbytes > MAX_FILE_BYTES:
            files.append({})
            size = 0
        files[-1][name] = array
        size += array.nbytes
    for number, arrays in enumerate(files):
        np.savez(folder / f"student-{number}.npz", **arrays)  # type: ignore[arg-type]


def load(path: Path) -> Encoder:
    """Load weights as bases.py writes them: as they are, or as whole steps."""
    with np.load(path) as packed:
        weights = {
            name: packed[name] * packed[f"{name}.step"] if f"{name}.step" in packed.files else packed[name]
            for name in packed.files
            if not name.endswith(".step")
        }
    return Encoder(weights)


class Trial(NamedTuple):
    """The data, the number of pairs to use at most, and what is to be written."""

    data: Data
    bases: Path
    most: int | None
    outputs: dict[str, Array]

    def limit(self, rows: Array) -> Array:
        """Return the rows, or as many of them as are to be used."""
        return rows if self.most is None else np.random.default_rng(0).permutation(rows)[: self.most]


def train_teachers(trial: Trial, unseen: Array, seconds: float) -> None:
    """Train both teachers, and put what they say into the targets: its mean with a label, or alone where none is."""
    data = trial.data
    claim_logits, token_logits = torch.full_like(data.claims, math.nan), torch.full_like(data.marks, math.nan)
    mean = torch.zeros_like(data.claims)
    for number, half in enumerate(HALVES):
        teacher = load(trial.bases / "teacher.npz").to(data.device)
        rows = trial.limit(data.chosen((HUMAN, ALTERED), half, tuple(fold for fold in half if fold > 1)))
        train(teacher, data, rows, "teacher", seconds, number)
        other = HALVES[1 - number]
        answers = tell(teacher, data, trial.limit(data.chosen((HUMAN, ALTERED, HIDDEN), other, other)))
        for collected, logits in zip((claim_logits, token_logits), answers, strict=True):
            collected[~logits.isnan()] = logits[~logits.isnan()]
        judged = tell(teacher, data, unseen)[0]
        report(f"teacher {number}", data, judged, unseen)
        mean = mean + judged / 2
    report("both teachers", data, mean, unseen)
    trial.outputs["teachers"] = mean.cpu().numpy()
    for target, logits in ((data.claims, claim_logits), (data.marks, token_logits)):
        has, known = ~logits.isnan(), target >= 0
        probability = torch.sigmoid(logits)
        target[has & known] = ((1 - BLEND) * target + BLEND * probability)[has & known]
        target[has & ~known] = probability[has & ~known]


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("bases", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--teacher", type=float, default=32.0, help="seconds for each of the two; 0: none")
    parser.add_argument("--student", type=float, default=78.0, help="seconds")
    parser.add_argument("--rows", type=int, help="use so many pairs only, to try the script")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    data = Data(options.pairs, device)
    trial = Trial(data, options.bases, options.rows, {})
    unseen = trial.limit(data.chosen((HUMAN,), (0,), (0, 1)))
    print(f"{len(data.sizes):,} pairs, {len(unseen):,} of them held out", flush=True)
    kinds: tuple[int, ...] = (HUMAN, ALTERED)
    if options.teacher:
        train_teachers(trial, unseen, options.teacher)
        kinds = (HUMAN, ALTERED, HIDDEN)
    student = load(options.bases / "student.npz").to(device)
    train(student, data, trial.limit(data.chosen(kinds, (1, 2, 3, 4), (2, 3, 4))), "student", options.student, 7)
    options.out.mkdir(parents=True, exist_ok=True)
    save(student, options.out)
    claims, tokens = tell(student, data, unseen)
    report("student", data, claims, unseen)
    trial.outputs.update(rows=unseen, student=claims.cpu().numpy(), tokens=tokens.cpu().numpy().astype(np.float16))
    np.savez_compressed(options.out / "held.npz", **trial.outputs)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
