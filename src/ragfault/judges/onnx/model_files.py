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

from ragfault.errors import UnknownName, UsageError

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""The shape of a model's name on the hub."""


def get_hub_cache() -> Path:
    """The folder where the hub's own tools keep what they fetched."""
    held = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(held or f"{home}/hub").expanduser()


def locate_snapshot(name: str) -> Path | None:
    """The folder of a model in the cache of the hub: its main version, else the one fetched last.

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
        held = [place for place in (folder / "snapshots").iterdir() if place.is_dir()]
    except OSError:
        return None
    return max(held, key=lambda place: (place.stat().st_mtime, place.name), default=None)


ModelKind = Literal["pair", "tokens"]
ModelTask = Literal["entailment", "relevance"]

MAX_FILE_BYTES = {"config.json": 1 << 20, "tokenizer.json": 1 << 26}
"""How many bytes of a file are read."""
GRAPH_FILES = ("model.onnx", "onnx/model.onnx")
MAX_PATH_CHARS = 1000
"""So many characters name a folder."""
MODEL_SETTINGS = ("labels", "serves", "room")
MAX_TOKENS_BY_KIND: dict[ModelKind, int] = {"pair": 512, "tokens": 4096}
"""At most so many tokens are read at once, whatever a model could."""
MIN_TOKENS = 16
LABEL_NAMES = {
    "holds": "entailment entail entails entailed supported support supports consistent grounded faithful factual true",
    "against": "contradiction contradict contradicts contradicted contradictory refuted refutes refute",
    "open": "neutral unknown notenoughinfo nei notenoughinformation",
    "lacks": "notentailment nonentailment notentailed unsupported notsupported inconsistent notconsistent ungrounded"
    " notgrounded hallucinated hallucination unfaithful nonfactual false",
}
"""What a label says of the claim, by its name without case, spaces and signs."""
LABEL_ROLES = {name: role for role, names in LABEL_NAMES.items() for name in names.split()}


class OnnxModelConfig(NamedTuple):
    """A model on disk, and how what it puts out is to be read."""

    name: str
    graph: Path
    tokenizer: Path
    kind: ModelKind
    task: ModelTask
    label_count: int
    """How many numbers come out for a pair or a token."""
    support_label: int
    """The label of support or relevance."""
    contradiction_label: int | None
    """The label of contradiction, where there is one."""
    max_tokens: int
    """How many tokens are read at once."""
    pad_token: int
    digest: str


def load_model_config(address: str) -> OnnxModelConfig:
    """The model that an address names: a folder, an .onnx file or a name on the hub, and settings behind a "?".

    Raises UsageError where files are missing, not what they should be, or do not say which label means what.
    """
    where, _, settings = address.partition("?")
    chosen = _parse_settings(settings)
    graph, folder = _locate_files(where)
    config = _read_json(folder / "config.json")
    tokenizer = _check_file(folder / "tokenizer.json")
    kind: ModelKind = "tokens" if _has_architecture(config, "TokenClassification") else "pair"
    labels = _read_labels(config, chosen.get("labels"))
    one = len(labels) == 1
    serves = chosen.get("serves") or ("relevance" if one else "entailment")
    if serves not in {"entailment", "relevance"} or (kind == "tokens" and serves == "relevance"):
        raise UsageError(
            f"onnx:{where}: serves={serves}: a {kind} model of {len(labels)} labels serves entailment"
            + (" or relevance." if kind == "pair" else ".")
        )
    holds, against = _assign_labels(where, labels, kind)
    return OnnxModelConfig(
        name=_format_name(where, graph, folder),
        graph=graph,
        tokenizer=tokenizer,
        kind=kind,
        task="relevance" if serves == "relevance" else "entailment",
        label_count=len(labels),
        support_label=holds,
        contradiction_label=against,
        max_tokens=_read_max_tokens(where, config, kind, chosen.get("room")),
        pad_token=_read_pad_token(config),
        digest=_digest_files(graph, tokenizer),
    )


def _parse_settings(text: str) -> dict[str, str]:
    """What stands behind the question mark."""
    chosen = dict(parse_qsl(text, keep_blank_values=True))
    for key in chosen:
        if key not in MODEL_SETTINGS:
            raise UnknownName("setting of a model", key, MODEL_SETTINGS)
    return chosen


# --- files -----------------------------------------------------------------------------------------


def _locate_files(location: str) -> tuple[Path, Path]:
    """The graph, and the folder of its configuration."""
    if not location:
        raise UsageError("onnx: say which model: onnx:FOLDER, onnx:FILE.onnx or onnx:OWNER/NAME.")
    place = Path(location).expanduser()
    if len(location) > MAX_PATH_CHARS or "\0" in location:
        raise UsageError(f"onnx:{location[:40]}… is no path.")
    if place.is_file():
        beside = place.absolute().parent
        up = not (beside / "config.json").is_file() and (beside.parent / "config.json").is_file()
        return place.absolute(), beside.parent if up else beside
    if not place.is_dir():
        place = _locate_cached(location)
    for name in GRAPH_FILES:
        if (place / name).is_file():
            return (place / name).absolute(), place.absolute()
    raise UsageError(
        f"{place} holds no {' or '.join(GRAPH_FILES)}. Name the file itself, onnx:{location}/FILE.onnx, or export the model "
        f"to ONNX first."
    )


def _locate_cached(name: str) -> Path:
    """The folder of a hub model that was fetched before."""
    if not HUB_NAME.fullmatch(name):
        raise UsageError(
            f"there is no {name}. After onnx: stands a folder, an .onnx file, or the OWNER/NAME of a model."
        )
    found = locate_snapshot(name)
    if found is None:
        raise UsageError(
            f"there is no folder {name} here, and no model of that name in {get_hub_cache()}. Nothing is fetched unasked. "
            f"Fetch it with: hf download {name} --include '*.json' '*.onnx'"
        )
    return found


def _check_file(path: Path) -> Path:
    """A file that must be there and of a size to be read."""
    if not path.is_file():
        raise UsageError(
            f"{path.parent} holds no {path.name}, which must stand beside the model. "
            + ("Save it with: tokenizer.save_pretrained(FOLDER)" if path.name == "tokenizer.json" else "")
        )
    size = path.stat().st_size
    if size > MAX_FILE_BYTES[path.name]:
        raise UsageError(
            f"{path} has {size:,} bytes; a {path.name} has at most {MAX_FILE_BYTES[path.name]:,}. It is something else."
        )
    return path


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        read = json.loads(_check_file(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise UsageError(f"{path} holds no object, but a {type(read).__name__}.")
    return read


def _format_name(location: str, graph: Path, folder: Path) -> str:
    """What a model is called in the fingerprint, in one word."""
    name = location if HUB_NAME.fullmatch(location) and not Path(location).exists() else folder.name
    if graph.name != "model.onnx":
        name = f"{name}/{graph.name}"
    return "-".join(name.split())


def _read_pad_token(config: dict[str, Any]) -> int:
    """The token that fills up a row; the first where the configuration names none that there can be."""
    said = config.get("pad_token_id")
    return said if isinstance(said, int) and said >= 0 else 0


def _digest_files(*files: Path) -> str:
    """The content of some files and of the weights that stand beside a graph, in eight signs."""
    digest = hashlib.sha256()
    for file in files:
        for one in (file, Path(f"{file}_data"), Path(f"{file}.data")):
            if one.is_file():
                with one.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:8]


# --- labels ----------------------------------------------------------------------------------------


def _has_architecture(config: dict[str, Any], word: str) -> bool:
    kinds = config.get("architectures")
    return isinstance(kinds, list) and any(isinstance(one, str) and one.endswith(word) for one in kinds)


def _read_labels(config: dict[str, Any], setting: str | None) -> list[str]:
    """The labels in order."""
    if setting is not None:
        return [one.strip() for one in setting.split(",")]
    held = config.get("id2label")
    if isinstance(held, dict) and all(str(place) in held for place in range(len(held))) and held:
        return [str(held[str(place)]) for place in range(len(held))]
    count = config.get("num_labels", 2)  # two is what the library that writes these files takes for granted
    return [f"LABEL_{place}" for place in range(count if isinstance(count, int) and 0 < count < 100 else 2)]


def _assign_labels(location: str, labels: list[str], kind: ModelKind) -> tuple[int, int | None]:
    """The label of support, and that of contradiction.

    Of two labels, one that says what it means tells what the other does. Of tokens the second of two nameless
    labels marks what is hallucinated.
    """
    if kind == "pair" and len(labels) == 1:
        return 0, None
    roles = [LABEL_ROLES.get(_normalize_label(label)) for label in labels]
    if kind == "tokens" and labels == ["LABEL_0", "LABEL_1"]:
        return 0, None
    against = roles.index("against") if "against" in roles else None
    if len(labels) == 2:
        bad = next((place for place, role in enumerate(roles) if role in {"lacks", "against", "open"}), None)
        if roles.count("holds") == 1:
            return roles.index("holds"), against
        if bad is not None and roles.count(None) == 1:
            return 1 - bad, against
    if len(labels) == 3 and {"holds", "against", "open"} == set(roles):
        return roles.index("holds"), against
    raise UsageError(
        f"onnx:{location}: the labels {', '.join(labels)} do not say what they mean. Say it, in the order in which they "
        f'come out: "onnx:{location}?labels=contradiction,entailment,neutral" or '
        f'"onnx:{location}?labels=unsupported,supported", or "?labels=score&serves=relevance" for one number.'
    )


def _normalize_label(label: str) -> str:
    return "".join(sign for sign in label.lower() if sign.isalnum())


def _read_max_tokens(location: str, config: dict[str, Any], kind: ModelKind, setting: str | None) -> int:
    """How many tokens a model reads at once."""
    if setting is not None:
        if not setting.isdecimal() or int(setting) < MIN_TOKENS:
            raise UsageError(
                f"onnx:{location}: room={setting}: say how many tokens are read at once, at least {MIN_TOKENS}."
            )
        return int(setting)
    most = config.get("max_position_embeddings")
    fits = float(most) if isinstance(most, int) and most > 0 else math.inf
    if config.get("model_type") in {"roberta", "xlm-roberta", "camembert"}:
        fits -= 2  # two places are taken by the padding
    return int(max(MIN_TOKENS, min(MAX_TOKENS_BY_KIND[kind], fits)))
