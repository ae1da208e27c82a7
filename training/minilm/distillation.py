"""Train the encoder of the judge minilm on claims with their evidence, distilled from two larger encoders.

    python training/minilm/distillation.py pairs.npz BASES -o OUT [--teacher 32] [--student 78]

Needs torch and numpy alone, and a GPU to be quick; the options give seconds for each part of the training. BASES holds
`student.npz` and `teacher.npz`, as `python -m training.minilm.bases` writes them. Two teachers (MPNet, 110 million
weights) are trained on half of the sources each, and predict for the other half how likely each claim and each token is
bad: labels of people have errors, and claims with evidence left out have no labels. The student is trained on the mean
of label and prediction. Writes the weights of the student in 16-bit floats (in files of at most 15 MB), and the logits
of teachers and student for held-out claims. The learning rate is scheduled by the clock, so that a rerun yields weights
close to the packaged ones, not the same.
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

BATCH_SIZE = {"teacher": 96, "student": 192}
LEARNING_RATE = {"teacher": 6e-5, "student": 1.5e-4}
HEAD_LEARNING_RATE = 1e-3
EPOCHS = {"teacher": 4, "student": 14}
"""Epochs at most; the seconds may end the training before."""
UNMARKED_RATIO = {"teacher": 2.5, "student": 5.0}
"""The number of claims that people did not mark for each claim that they marked, in an epoch."""
WARMUP_SHARE, WEIGHT_DECAY, MAX_GRADIENT_NORM, DROPOUT = 0.05, 0.01, 1.0, 0.1
TOKEN_LOSS_WEIGHT = 0.6
"""The weight of the loss of tokens beside the loss of claims."""
MARKED_LOSS_WEIGHT = 2.0
"""The weight of a bad claim or token beside another."""
TEACHER_SHARE = 0.5
"""The share of the teacher's prediction in the student's target; the rest is the label."""
SMALL_SET_REPEATS = 2
"""How many times the smaller sets occur in an epoch."""
SORTED_BATCHES = 32
"""Batches among which rows are sorted by length."""
TEACHER_FOLDS = ((1, 2), (3, 4))
"""The folds that each teacher is trained on."""
HUMAN, ALTERED, HIDDEN = 0, 1, 2
"""Kinds of pairs, see pairs.py."""
HEAD_COUNT = 12
START_TOKEN, END_TOKEN, TEACHER_TOKEN_OFFSET = 101, 102, 4
"""Tokens at the start of a pair and at the end of each text; for the teacher they are 0 and 2, and others 4 higher."""
MAX_FILE_BYTES = 15_000_000

Array = np.ndarray[Any, Any]


class Encoder(nn.Module):
    """A BERT, or an MPNet where there is a relative bias, with three outputs for each token."""

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

    def normalize(self, hidden: Tensor, name: str) -> Tensor:
        """Apply a layer normalization."""
        weights = self.weights
        return functional.layer_norm(hidden, (self.width,), weights[name + "/w"], weights[name + "/b"], self.epsilon)

    def apply_linear(self, hidden: Tensor, name: str) -> Tensor:
        """Apply a matrix and a bias."""
        return functional.linear(hidden, self.weights[name + "/w"].t(), self.weights[name + "/b"])

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
        """Return for each token its own logit, its summand of the claim's logit, and the summand of the first token."""
        weights, (rows, length) = self.weights, ids.shape
        dropout = DROPOUT if self.training else 0.0
        positions = torch.arange(length, device=ids.device) + (2 if self.is_relative else 0)
        hidden = functional.embedding(ids, weights["word"]) + functional.embedding(positions, weights["place"])
        if not self.is_relative:
            hidden = hidden + functional.embedding(kinds, weights["kind"])
        hidden = functional.dropout(self.normalize(hidden, "norm"), dropout, self.training)
        bias = torch.where(mask[:, None, None, :], 0.0, -1e4)
        if self.is_relative:
            bias = bias + self.compute_relative_bias(length, ids.device)
        for number in range(self.layer_count):
            prefix = f"{number}/"
            projected = self.apply_linear(hidden, prefix + "qkv").view(rows, length, 3, HEAD_COUNT, -1)
            query, key, value = projected.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=bias.to(value.dtype).expand(rows, HEAD_COUNT, length, length),
                dropout_p=dropout,
            )
            mixed = self.apply_linear(mixed.transpose(1, 2).reshape(rows, length, self.width), prefix + "out")
            hidden = self.normalize(hidden + functional.dropout(mixed, dropout, self.training), prefix + "n1")
            inner = self.apply_linear(functional.gelu(self.apply_linear(hidden, prefix + "up")), prefix + "down")
            hidden = self.normalize(hidden + functional.dropout(inner, dropout, self.training), prefix + "n2")
        return self.out(hidden).float()

    def compute_relative_bias(self, length: int, device: torch.device) -> Tensor:
        """Return the attention bias of each head by distance, in 32 buckets (as in T5)."""
        positions = torch.arange(length, device=device)
        distance = positions[:, None] - positions[None, :]
        is_later, size = (distance < 0).long() * 16, distance.abs()
        large = 8 + (torch.log(size.float().clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
        buckets = is_later + torch.where(size < 8, size, large.clamp(max=15))
        return functional.embedding(buckets, self.weights["relative"]).permute(2, 0, 1)[None]


class Batch(NamedTuple):
    """Padded pairs on the device."""

    ids: Tensor
    mask: Tensor
    kinds: Tensor
    marks: Tensor
    """The index of each token of the claims in the labels of all tokens; -1 of others."""
    rows: Tensor
    """The index of each pair in the dataset."""


class PairDataset:
    """All pairs, with the targets of claims and tokens, into which predictions of the teachers are mixed."""

    def __init__(self, path: Path, device: torch.device) -> None:
        with np.load(path) as packed:
            self.raw = {name: packed[name] for name in packed.files}
        self.device = device
        self.ids = torch.tensor(self.raw["ids"].astype(np.int32), device=device)
        self.sizes = np.diff(self.raw["ids_at"])
        self.claims = torch.tensor(self.raw["label"].astype(np.float32), device=device)
        self.marks = torch.tensor(self.raw["marks"].astype(np.float32), device=device)

    def select_rows(self, kinds: tuple[int, ...], ragtruth: tuple[int, ...], others: tuple[int, ...]) -> Array:
        """Return the rows of some kinds, of some folds of RAGTruth, and of some of the other sets."""
        raw = self.raw
        inside = np.where(raw["set"] == 0, np.isin(raw["fold"], ragtruth), np.isin(raw["fold"], others))
        return np.flatnonzero(inside & np.isin(raw["kind"], kinds))

    def build_batch(self, rows: Array, is_relative: bool) -> Batch:
        """Return rows as tensors, padded to the longest."""
        raw, device = self.raw, self.device
        length = int(-(-self.sizes[rows].max() // 8) * 8)
        positions = torch.arange(length, device=device)
        begin = torch.tensor(raw["ids_at"][rows], device=device)[:, None]
        mask = positions[None] < torch.tensor(self.sizes[rows], device=device)[:, None]
        ids = self.ids[torch.where(mask, begin + positions, 0)].long()
        if is_relative:
            ids = torch.where(ids == START_TOKEN, 0, torch.where(ids == END_TOKEN, 2, ids + TEACHER_TOKEN_OFFSET))
        ids = torch.where(mask, ids, 1 if is_relative else 0)
        first = torch.tensor(raw["first_length"][rows].astype(np.int64), device=device)[:, None]
        is_claim = (positions[None] > 0) & (positions[None] < first - 1)
        marks = torch.where(is_claim, torch.tensor(raw["marks_at"][rows], device=device)[:, None] + positions - 1, -1)
        return Batch(ids, mask, ((positions[None] >= first) & mask).long(), marks, torch.tensor(rows, device=device))

    def sample_epoch(self, rows: Array, model_name: str, random: np.random.Generator) -> Array:
        """Return the rows of an epoch: a sample of the unmarked claims of RAGTruth, the smaller sets repeated."""
        raw = self.raw
        is_human = (raw["set"][rows] == 0) & (raw["kind"][rows] == 0)
        unmarked, is_marked = rows[is_human & (raw["label"][rows] == 0)], is_human & (raw["label"][rows] == 1)
        sampled = random.permutation(unmarked)[: int(UNMARKED_RATIO[model_name] * is_marked.sum())]
        repeated = [rows[raw["set"][rows] > 0]] * (SMALL_SET_REPEATS - 1)
        return np.concatenate([sampled, rows[~is_human], rows[is_marked], *repeated])

    def iterate_batches(self, rows: Array, size: int, random: np.random.Generator) -> Iterator[Array]:
        """Yield the rows of each batch of an epoch, of similar length and in random order."""
        order = random.permutation(rows)
        for start in range(0, len(order), size * SORTED_BATCHES):
            window = order[start : start + size * SORTED_BATCHES]
            window = window[np.argsort(self.sizes[window], kind="stable")]
            pieces = [window[at : at + size] for at in range(0, len(window), size)]
            for at in random.permutation(len(pieces)):
                yield pieces[at]


def compute_logits(network: Encoder, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logit of each claim and of each token."""
    with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
        values = network(batch.ids, batch.mask, batch.kinds)
    claim_mask = (batch.mask & (batch.kinds == 0)).float()
    return (values[..., 1] * claim_mask).sum(1) / claim_mask.sum(1) + values[:, 0, 2], values[..., 0]


def compute_loss(network: Encoder, batch: Batch, data: PairDataset) -> Tensor:
    """Return the weighted sum of the cross-entropy of claims and of tokens, over those with a target."""
    claims, tokens = compute_logits(network, batch)
    weight = torch.tensor(MARKED_LOSS_WEIGHT, device=claims.device)
    target = data.claims[batch.rows]
    has_label = (target >= 0).float()
    claim_losses = functional.binary_cross_entropy_with_logits(
        claims, target.clamp(min=0), pos_weight=weight, reduction="none"
    )
    in_claim = batch.marks >= 0
    marks = torch.where(in_claim, data.marks[batch.marks.clamp(min=0)], -1.0)
    is_known = (marks >= 0).float()
    token_losses = functional.binary_cross_entropy_with_logits(
        tokens, marks.clamp(min=0), pos_weight=weight, reduction="none"
    )
    return (claim_losses * has_label).sum() / has_label.sum().clamp(min=1) + TOKEN_LOSS_WEIGHT * (
        token_losses * is_known
    ).sum() / is_known.sum().clamp(min=1)


def train(network: Encoder, data: PairDataset, rows: Array, model_name: str, seconds: float, seed: int) -> None:
    """Train for the epochs of a model or for some seconds, whichever ends first."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    size, start_time = BATCH_SIZE[model_name], time.monotonic()
    steps = EPOCHS[model_name] * (len(data.sample_epoch(rows, model_name, random)) // size + 1)
    heads = list(network.out.parameters())
    body = [weight for weight in network.weights.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in body if weight.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [weight for weight in body if weight.ndim == 1], "weight_decay": 0.0},
        {"params": heads, "weight_decay": WEIGHT_DECAY},
    ]
    optimiser = torch.optim.AdamW(groups, lr=1e-4, fused=data.device.type == "cuda")
    network.train()
    step, mean = 0, float("nan")
    while True:
        for batch_rows in data.iterate_batches(data.sample_epoch(rows, model_name, random), size, random):
            progress = max(step / steps, (time.monotonic() - start_time) / seconds)
            if progress >= 1:
                elapsed = time.monotonic() - start_time
                print(f"{model_name}: {step} of {steps} steps, {elapsed:.0f} s, loss {mean:.4f}", flush=True)
                return
            for number, group in enumerate(optimiser.param_groups):
                rate = HEAD_LEARNING_RATE if number == 2 else LEARNING_RATE[model_name]
                group["lr"] = rate * min(1.0, progress / WARMUP_SHARE) * (1.0 - progress)
            loss = compute_loss(network, data.build_batch(batch_rows, network.is_relative), data)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            if step % 50 == 0:
                value = loss.item()
                mean = value if step == 0 else 0.8 * mean + 0.2 * value
                print(f"{model_name} {step}/{steps} {time.monotonic() - start_time:.0f} s loss {mean:.4f}", flush=True)
            step += 1


@torch.inference_mode()
def predict_logits(network: Encoder, data: PairDataset, rows: Array) -> tuple[Tensor, Tensor]:
    """Predict the logits of all claims and tokens; nan outside the given rows."""
    network.eval()
    claims, tokens = torch.full_like(data.claims, math.nan), torch.full_like(data.marks, math.nan)
    ordered = rows[np.argsort(data.sizes[rows], kind="stable")]
    for start in range(0, len(ordered), 384):
        batch = data.build_batch(ordered[start : start + 384], network.is_relative)
        claim_logits, token_logits = compute_logits(network, batch)
        claims[batch.rows] = claim_logits
        in_claim = batch.marks >= 0
        tokens[batch.marks[in_claim]] = token_logits[in_claim]
    return claims, tokens


def compute_auroc(scores: Array, labels: Array) -> float:
    """Return the AUROC, equal scores in their order; ragfault.stats is not on the machine of the training."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    good, bad = (labels == 0).sum(), (labels == 1).sum()
    return float((ranks[labels == 1].sum() - bad * (bad + 1) / 2) / max(1, good * bad))


def report(name: str, data: PairDataset, claims: Tensor, rows: Array) -> None:
    """Print for each set the AUROC of claims, and of answers by their worst claim."""
    raw, logits = data.raw, claims.float().cpu().numpy()
    for number in np.unique(raw["set"][rows]):
        set_rows = rows[raw["set"][rows] == number]
        labelled = set_rows[raw["label"][set_rows] >= 0]
        names, answers = np.unique(raw["id"][set_rows], return_inverse=True)
        worst, bad = np.full(len(names), -99.0), np.zeros(len(names))
        np.maximum.at(worst, answers, logits[set_rows])
        np.maximum.at(bad, answers, raw["label"][set_rows])
        claim_auroc, answer_auroc = compute_auroc(logits[labelled], raw["label"][labelled]), compute_auroc(worst, bad)
        print(f"{name} set {number}: {len(labelled)} claims AUROC {claim_auroc:.4f}; "
              f"{len(names)} answers AUROC {answer_auroc:.4f}", flush=True)  # fmt: skip


def save(network: Encoder, folder: Path) -> None:
    """Write the trained weights, matrices in 16-bit floats, in files of limited size."""
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
    """Load weights as bases.py writes them: floats, or integers with a step for each row."""
    with np.load(path) as packed:
        weights = {
            name: packed[name] * packed[f"{name}.step"] if f"{name}.step" in packed.files else packed[name]
            for name in packed.files
            if not name.endswith(".step")
        }
    return Encoder(weights)


class Experiment(NamedTuple):
    """A run of the training: the data, the initial weights, the pairs to use at most, and the arrays to write."""

    data: PairDataset
    bases: Path
    max_pairs: int | None
    outputs: dict[str, Array]

    def limit(self, rows: Array) -> Array:
        """Return the rows, or a random sample of at most `max_pairs` of them."""
        return rows if self.max_pairs is None else np.random.default_rng(0).permutation(rows)[: self.max_pairs]


def train_teachers(experiment: Experiment, test_rows: Array, seconds: float) -> None:
    """Train both teachers; set each target to the mean of label and prediction, or to the prediction without label."""
    data = experiment.data
    claim_logits, token_logits = torch.full_like(data.claims, math.nan), torch.full_like(data.marks, math.nan)
    mean = torch.zeros_like(data.claims)
    for number, folds in enumerate(TEACHER_FOLDS):
        teacher = load(experiment.bases / "teacher.npz").to(data.device)
        rows = experiment.limit(data.select_rows((HUMAN, ALTERED), folds, tuple(fold for fold in folds if fold > 1)))
        train(teacher, data, rows, "teacher", seconds, number)
        other_folds = TEACHER_FOLDS[1 - number]
        other_rows = experiment.limit(data.select_rows((HUMAN, ALTERED, HIDDEN), other_folds, other_folds))
        predictions = predict_logits(teacher, data, other_rows)
        for collected, logits in zip((claim_logits, token_logits), predictions, strict=True):
            collected[~logits.isnan()] = logits[~logits.isnan()]
        unseen_logits = predict_logits(teacher, data, test_rows)[0]
        report(f"teacher {number}", data, unseen_logits, test_rows)
        mean = mean + unseen_logits / 2
    report("both teachers", data, mean, test_rows)
    experiment.outputs["teachers"] = mean.cpu().numpy()
    for target, logits in ((data.claims, claim_logits), (data.marks, token_logits)):
        is_predicted, has_label = ~logits.isnan(), target >= 0
        probability = torch.sigmoid(logits)
        mixed = (1 - TEACHER_SHARE) * target + TEACHER_SHARE * probability
        target[is_predicted & has_label] = mixed[is_predicted & has_label]
        target[is_predicted & ~has_label] = probability[is_predicted & ~has_label]


def main() -> None:
    """Train the teachers and the student, measure them on held-out claims, and write the weights."""
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
    data = PairDataset(options.pairs, device)
    experiment = Experiment(data, options.bases, options.rows, {})
    test_rows = experiment.limit(data.select_rows((HUMAN,), (0,), (0, 1)))
    print(f"{len(data.sizes):,} pairs, {len(test_rows):,} of them held out", flush=True)
    kinds: tuple[int, ...] = (HUMAN, ALTERED)
    if options.teacher:
        train_teachers(experiment, test_rows, options.teacher)
        kinds = (HUMAN, ALTERED, HIDDEN)
    student = load(options.bases / "student.npz").to(device)
    train(
        student, data, experiment.limit(data.select_rows(kinds, (1, 2, 3, 4), (2, 3, 4))), "student", options.student, 7
    )
    options.out.mkdir(parents=True, exist_ok=True)
    save(student, options.out)
    claims, tokens = predict_logits(student, data, test_rows)
    report("student", data, claims, test_rows)
    experiment.outputs.update(
        rows=test_rows, student=claims.cpu().numpy(), tokens=tokens.cpu().numpy().astype(np.float16)
    )
    np.savez_compressed(options.out / "held.npz", **experiment.outputs)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
