"""Files of an exported model: the hub cache, its configuration, and the meaning of its labels."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from ragfault.model.errors import UnknownName, UsageError

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""The form of a model's name on the hub."""


def get_hub_cache() -> Path:
    """Return the folder in which the hub's own tools cache their downloads."""
    cache = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(cache or f"{home}/hub").expanduser()


def locate_snapshot(name: str) -> Path | None:
    """Return the folder of a model in the hub cache: its main version, else the latest download; None without.

    >>> locate_snapshot("nobody/nothing") is None
    True
    """
    folder = get_hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text(encoding="ascii").strip()
        if main.is_dir():
            return main
    except (OSError, ValueError):
        pass
    try:
        snapshots = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return None
    return max(snapshots, key=lambda path: (path.stat().st_mtime, path.name), default=None)


ModelKind = Literal["pair", "tokens"]
ModelTask = Literal["entailment", "relevance"]

MAX_FILE_BYTES = {"config.json": 1 << 20, "tokenizer.json": 1 << 26}
"""A larger file is refused."""
GRAPH_FILES = ("model.onnx", "onnx/model.onnx")
MAX_PATH_CHARS = 1000
"""A longer path is refused."""
MODEL_SETTINGS = ("labels", "serves", "room")
MAX_TOKENS_BY_KIND: dict[ModelKind, int] = {"pair": 512, "tokens": 4096}
"""At most this many tokens are read at once, whatever the model allows."""
MIN_TOKENS = 16
LABEL_NAMES = {
    "holds": "entailment entail entails entailed supported support supports consistent grounded faithful factual true",
    "against": "contradiction contradict contradicts contradicted contradictory refuted refutes refute",
    "open": "neutral unknown notenoughinfo nei notenoughinformation",
    "lacks": "notentailment nonentailment notentailed unsupported notsupported inconsistent notconsistent ungrounded"
    " notgrounded hallucinated hallucination unfaithful nonfactual false",
}
"""Role of a label → its names without case, spaces and punctuation."""
LABEL_ROLES = {name: role for role, names in LABEL_NAMES.items() for name in names.split()}


class OnnxModelConfig(NamedTuple):
    """A model on disk, and the meaning of its output."""

    name: str
    graph: Path
    tokenizer: Path
    kind: ModelKind
    task: ModelTask
    label_count: int
    """The number of outputs for a pair or a token."""
    support_label: int
    """The label of support or relevance."""
    contradiction_label: int | None
    """The label of contradiction, if there is one."""
    max_tokens: int
    """The number of tokens that are read at once."""
    pad_token: int
    digest: str
    entry: str = ""
    """Name among the open models; empty: a model of any other kind."""


def load_model_config(address: str) -> OnnxModelConfig:
    """Load the configuration of a model: a folder, an .onnx file or a name on the hub, with settings after a "?".

    Raises UsageError if files are missing or invalid, or the labels have no meaning.
    """
    location, _, settings = address.partition("?")
    settings_by_name = _parse_settings(settings)
    graph, folder = locate_files(location)
    config = read_json(folder / "config.json")
    tokenizer = check_file(folder / "tokenizer.json")
    kind: ModelKind = "tokens" if _classifies_tokens(config) else "pair"
    labels = read_labels(config, settings_by_name.get("labels"))
    is_single = len(labels) == 1
    task = settings_by_name.get("serves") or ("relevance" if is_single else "entailment")
    if task not in {"entailment", "relevance"} or (kind == "tokens" and task == "relevance"):
        raise UsageError(
            f"onnx:{location}: serves={task}: a {kind} model of {len(labels)} labels serves entailment"
            + (" or relevance." if kind == "pair" else ".")
        )
    support_label, contradiction_label = _assign_labels(location, labels, kind)
    return OnnxModelConfig(
        name=_format_name(location, graph, folder),
        graph=graph,
        tokenizer=tokenizer,
        kind=kind,
        task="relevance" if task == "relevance" else "entailment",
        label_count=len(labels),
        support_label=support_label,
        contradiction_label=contradiction_label,
        max_tokens=_read_max_tokens(location, config, kind, settings_by_name.get("room")),
        pad_token=read_pad_token(config),
        digest=_digest_files(graph, tokenizer),
    )


def _parse_settings(text: str) -> dict[str, str]:
    """Parse the settings after the question mark."""
    settings = dict(parse_qsl(text, keep_blank_values=True))
    for key in settings:
        if key not in MODEL_SETTINGS:
            raise UnknownName("setting of a model", key, MODEL_SETTINGS)
    return settings


def locate_files(location: str) -> tuple[Path, Path]:
    """Return the graph, and the folder of its configuration."""
    if not location:
        raise UsageError("onnx: no model is named. Write onnx:FOLDER, onnx:FILE.onnx or onnx:OWNER/NAME.")
    path = Path(location).expanduser()
    if len(location) > MAX_PATH_CHARS or "\0" in location:
        raise UsageError(f"onnx:{location[:40]}… is not a path.")
    if path.is_file():
        folder = path.absolute().parent
        is_above = not (folder / "config.json").is_file() and (folder.parent / "config.json").is_file()
        return path.absolute(), folder.parent if is_above else folder
    if not path.is_dir():
        path = _locate_cached(location)
    for name in GRAPH_FILES:
        if (path / name).is_file():
            return (path / name).absolute(), path.absolute()
    raise UsageError(
        f"{path} holds no {' or '.join(GRAPH_FILES)}. Name the file itself, onnx:{location}/FILE.onnx, "
        f"or export the model to ONNX first."
    )


def _locate_cached(name: str) -> Path:
    """Return the folder of a hub model that was downloaded before."""
    if not HUB_NAME.fullmatch(name):
        raise UsageError(
            f"there is no {name}. After onnx: comes a folder, an .onnx file, or the OWNER/NAME of a model."
        )
    folder = locate_snapshot(name)
    if folder is None:
        raise UsageError(
            f"there is no folder {name} here, and no model of that name in {get_hub_cache()}. "
            f"Models are not downloaded by themselves. Download it with: hf download {name} --include '*.json' '*.onnx'"
        )
    return folder


def check_file(path: Path) -> Path:
    """Return the path of a file that exists and is not too large."""
    if not path.is_file():
        raise UsageError(
            f"{path.parent} holds no {path.name}, which must be next to the model. "
            + ("Save it with: tokenizer.save_pretrained(FOLDER)" if path.name == "tokenizer.json" else "")
        )
    size = path.stat().st_size
    if size > MAX_FILE_BYTES[path.name]:
        raise UsageError(
            f"{path} has {size:,} bytes; a {path.name} has at most {MAX_FILE_BYTES[path.name]:,}. It is something else."
        )
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        value = json.loads(check_file(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no object, but a {type(value).__name__}.")
    return value


def _format_name(location: str, graph: Path, folder: Path) -> str:
    """Return the name of a model in the fingerprint, as one word."""
    name = location if HUB_NAME.fullmatch(location) and not Path(location).exists() else folder.name
    if graph.name != "model.onnx":
        name = f"{name}/{graph.name}"
    return "-".join(name.split())


def read_pad_token(config: dict[str, Any]) -> int:
    """Return the padding token; 0 if the configuration has no valid one."""
    token = config.get("pad_token_id")
    return token if isinstance(token, int) and token >= 0 else 0


def _digest_files(*files: Path) -> str:
    """Return the digest of some files and of the weights next to a graph, in eight digits."""
    digest = hashlib.sha256()
    for file in files:
        for path in (file, Path(f"{file}_data"), Path(f"{file}.data")):
            if path.is_file():
                with path.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:8]


def _classifies_tokens(config: dict[str, Any]) -> bool:
    names = config.get("architectures")
    return isinstance(names, list) and any(str(name).endswith("TokenClassification") for name in names)


def read_labels(config: dict[str, Any], setting: str | None) -> list[str]:
    """Return the labels in order."""
    if setting is not None:
        return [label.strip() for label in setting.split(",")]
    labels = config.get("id2label")
    if isinstance(labels, dict) and all(str(number) in labels for number in range(len(labels))) and labels:
        return [str(labels[str(number)]) for number in range(len(labels))]
    # two is what the library that writes these files takes for granted
    count = config.get("num_labels", 2)
    return [f"LABEL_{number}" for number in range(count if isinstance(count, int) and 0 < count < 100 else 2)]


def _assign_labels(location: str, labels: list[str], kind: ModelKind) -> tuple[int, int | None]:
    """Return the labels of support and contradiction; one of two determines the other, nameless tokens the second."""
    if kind == "pair" and len(labels) == 1:
        return 0, None
    roles = [LABEL_ROLES.get("".join(filter(str.isalnum, label.lower()))) for label in labels]
    if kind == "tokens" and labels == ["LABEL_0", "LABEL_1"]:
        return 0, None
    contradiction = roles.index("against") if "against" in roles else None
    if len(labels) == 2:
        negative = next((number for number, role in enumerate(roles) if role in {"lacks", "against", "open"}), None)
        if roles.count("holds") == 1:
            return roles.index("holds"), contradiction
        if negative is not None and roles.count(None) == 1:
            return 1 - negative, contradiction
    if len(labels) == 3 and {"holds", "against", "open"} == set(roles):
        return roles.index("holds"), contradiction
    raise UsageError(
        f"onnx:{location}: the labels {', '.join(labels)} do not name their classes. Name these, in their order: "
        f'"onnx:{location}?labels=contradiction,entailment,neutral" or '
        f'"onnx:{location}?labels=unsupported,supported", or "?labels=score&serves=relevance" for one number.'
    )


def _read_max_tokens(location: str, config: dict[str, Any], kind: ModelKind, setting: str | None) -> int:
    """Return the number of tokens that a model reads at once."""
    if setting is not None:
        if not setting.isdecimal() or int(setting) < MIN_TOKENS:
            raise UsageError(
                f"onnx:{location}: room={setting}: name the tokens that are read at once, at least {MIN_TOKENS}."
            )
        return int(setting)
    positions = config.get("max_position_embeddings")
    max_tokens = float(positions) if isinstance(positions, int) and positions > 0 else math.inf
    if config.get("model_type") in {"roberta", "xlm-roberta", "camembert"}:
        # two places are taken by the padding
        max_tokens -= 2
    return int(max(MIN_TOKENS, min(MAX_TOKENS_BY_KIND[kind], max_tokens)))
