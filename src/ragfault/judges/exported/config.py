"""Configuration: what kind of model a folder holds, and which of its labels says what."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from ragfault.errors import UnknownName, UsageError
from ragfault.judges.exported.hub import NAME, cache, snapshot

__all__ = ["Model", "model"]

Kind = Literal["pair", "tokens"]
Serves = Literal["entailment", "relevance"]

LARGEST = {"config.json": 1 << 20, "tokenizer.json": 1 << 26}
"""How many bytes of a file are read."""
GRAPHS = ("model.onnx", "onnx/model.onnx")
LONGEST = 1000
"""So many characters name a folder."""
SETTINGS = ("labels", "serves", "room")
ROOMS: dict[Kind, int] = {"pair": 512, "tokens": 4096}
"""At most so many tokens are read at once, whatever a model could."""
LEAST = 16
ROLES = {
    "holds": "entailment entail entails entailed supported support supports consistent grounded faithful factual true",
    "against": "contradiction contradict contradicts contradicted contradictory refuted refutes refute",
    "open": "neutral unknown notenoughinfo nei notenoughinformation",
    "lacks": "notentailment nonentailment notentailed unsupported notsupported inconsistent notconsistent ungrounded"
    " notgrounded hallucinated hallucination unfaithful nonfactual false",
}
"""What a label says of the claim, by its name without case, spaces and signs."""
ROLE = {name: role for role, names in ROLES.items() for name in names.split()}


class Model(NamedTuple):
    """A model on disk, and how what it puts out is to be read."""

    name: str
    graph: Path
    tokenizer: Path
    kind: Kind
    serves: Serves
    labels: int
    """How many numbers come out for a pair or a token."""
    holds: int
    """The label of support or relevance."""
    against: int | None
    """The label of contradiction, where there is one."""
    room: int
    """How many tokens are read at once."""
    pad: int
    digest: str


def model(address: str) -> Model:
    """The model that an address names: a folder, an .onnx file or a name on the hub, and settings behind a "?".

    Raises UsageError where files are missing, not what they should be, or do not say which label means what.
    """
    where, _, settings = address.partition("?")
    chosen = _settings(settings)
    graph, folder = _files(where)
    config = _json(folder / "config.json")
    tokenizer = _held(folder / "tokenizer.json")
    kind: Kind = "tokens" if _says(config, "TokenClassification") else "pair"
    labels = _labels(config, chosen.get("labels"))
    one = len(labels) == 1
    serves = chosen.get("serves") or ("relevance" if one else "entailment")
    if serves not in {"entailment", "relevance"} or (kind == "tokens" and serves == "relevance"):
        raise UsageError(
            f"onnx:{where}: serves={serves}: a {kind} model of {len(labels)} labels serves entailment"
            + (" or relevance." if kind == "pair" else ".")
        )
    holds, against = _order(where, labels, kind)
    return Model(
        name=_name(where, graph, folder),
        graph=graph,
        tokenizer=tokenizer,
        kind=kind,
        serves="relevance" if serves == "relevance" else "entailment",
        labels=len(labels),
        holds=holds,
        against=against,
        room=_room(where, config, kind, chosen.get("room")),
        pad=_pad(config),
        digest=_digest(graph, tokenizer),
    )


def _settings(text: str) -> dict[str, str]:
    """What stands behind the question mark."""
    chosen = dict(parse_qsl(text, keep_blank_values=True))
    for key in chosen:
        if key not in SETTINGS:
            raise UnknownName("setting of a model", key, SETTINGS)
    return chosen


# --- files -----------------------------------------------------------------------------------------


def _files(where: str) -> tuple[Path, Path]:
    """The graph, and the folder of its configuration."""
    if not where:
        raise UsageError("onnx: say which model: onnx:FOLDER, onnx:FILE.onnx or onnx:OWNER/NAME.")
    place = Path(where).expanduser()
    if len(where) > LONGEST or "\0" in where:
        raise UsageError(f"onnx:{where[:40]}… is no path.")
    if place.is_file():
        beside = place.absolute().parent
        up = not (beside / "config.json").is_file() and (beside.parent / "config.json").is_file()
        return place.absolute(), beside.parent if up else beside
    if not place.is_dir():
        place = _cached(where)
    for name in GRAPHS:
        if (place / name).is_file():
            return (place / name).absolute(), place.absolute()
    raise UsageError(
        f"{place} holds no {' or '.join(GRAPHS)}. Name the file itself, onnx:{where}/FILE.onnx, or export the model "
        f"to ONNX first."
    )


def _cached(name: str) -> Path:
    """The folder of a hub model that was fetched before."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"there is no {name}. After onnx: stands a folder, an .onnx file, or the OWNER/NAME of a model."
        )
    found = snapshot(name)
    if found is None:
        raise UsageError(
            f"there is no folder {name} here, and no model of that name in {cache()}. Nothing is fetched unasked. "
            f"Fetch it with: hf download {name} --include '*.json' '*.onnx'"
        )
    return found


def _held(path: Path) -> Path:
    """A file that must be there and of a size to be read."""
    if not path.is_file():
        raise UsageError(
            f"{path.parent} holds no {path.name}, which must stand beside the model. "
            + ("Save it with: tokenizer.save_pretrained(FOLDER)" if path.name == "tokenizer.json" else "")
        )
    size = path.stat().st_size
    if size > LARGEST[path.name]:
        raise UsageError(
            f"{path} has {size:,} bytes; a {path.name} has at most {LARGEST[path.name]:,}. It is something else."
        )
    return path


def _json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        read = json.loads(_held(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise UsageError(f"{path} holds no object, but a {type(read).__name__}.")
    return read


def _name(where: str, graph: Path, folder: Path) -> str:
    """What a model is called in the fingerprint, in one word."""
    name = where if NAME.fullmatch(where) and not Path(where).exists() else folder.name
    if graph.name != "model.onnx":
        name = f"{name}/{graph.name}"
    return "-".join(name.split())


def _pad(config: dict[str, Any]) -> int:
    """The token that fills up a row; the first where the configuration names none that there can be."""
    said = config.get("pad_token_id")
    return said if isinstance(said, int) and said >= 0 else 0


def _digest(*files: Path) -> str:
    """The content of some files and of the weights that stand beside a graph, in eight signs."""
    digest = hashlib.sha256()
    for file in files:
        for one in (file, Path(f"{file}_data"), Path(f"{file}.data")):
            if one.is_file():
                with one.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:8]


# --- labels ----------------------------------------------------------------------------------------


def _says(config: dict[str, Any], word: str) -> bool:
    kinds = config.get("architectures")
    return isinstance(kinds, list) and any(isinstance(one, str) and one.endswith(word) for one in kinds)


def _labels(config: dict[str, Any], said: str | None) -> list[str]:
    """The labels in order."""
    if said is not None:
        return [one.strip() for one in said.split(",")]
    held = config.get("id2label")
    if isinstance(held, dict) and all(str(place) in held for place in range(len(held))) and held:
        return [str(held[str(place)]) for place in range(len(held))]
    count = config.get("num_labels", 2)  # two is what the library that writes these files takes for granted
    return [f"LABEL_{place}" for place in range(count if isinstance(count, int) and 0 < count < 100 else 2)]


def _order(where: str, labels: list[str], kind: Kind) -> tuple[int, int | None]:
    """The label of support, and that of contradiction.

    Of two labels, one that says what it means tells what the other does. Of tokens the second of two nameless
    labels marks what is hallucinated.
    """
    if kind == "pair" and len(labels) == 1:
        return 0, None
    roles = [ROLE.get(_plain(label)) for label in labels]
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
        f"onnx:{where}: the labels {', '.join(labels)} do not say what they mean. Say it, in the order in which they "
        f'come out: "onnx:{where}?labels=contradiction,entailment,neutral" or '
        f'"onnx:{where}?labels=unsupported,supported", or "?labels=score&serves=relevance" for one number.'
    )


def _plain(label: str) -> str:
    return "".join(sign for sign in label.lower() if sign.isalnum())


def _room(where: str, config: dict[str, Any], kind: Kind, said: str | None) -> int:
    """How many tokens a model reads at once."""
    if said is not None:
        if not said.isdecimal() or int(said) < LEAST:
            raise UsageError(
                f"onnx:{where}: room={said}: say how many tokens are read at once, at least {LEAST}."
            )
        return int(said)
    most = config.get("max_position_embeddings")
    fits = float(most) if isinstance(most, int) and most > 0 else math.inf
    if config.get("model_type") in {"roberta", "xlm-roberta", "camembert"}:
        fits -= 2  # two places are taken by the padding
    return int(max(LEAST, min(ROOMS[kind], fits)))
