"""Open models by name: where their files are, how their input is written, and what their output means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.judges.llm.transport.reply_cache import ModelRole
from ragfault.judges.onnx.model_files import HUB_NAME, locate_snapshot
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.whole_files import parse_toml

OutputReading = Literal["marks", "label", "start", "words", "reply"]


class OpenModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `open_models.toml`, whose head explains the fields."""

    repository: str
    revision: str = ""
    """Commit whose input format was read; empty: any, because no source names one."""
    architecture: str
    reads: OutputReading
    text: str = ""
    """Input with {source} and {claim}; of a model that marks tokens the first text, without a question."""
    messages: tuple[tuple[ModelRole, str], ...] = ()
    """Messages to a model behind an endpoint, with {question}, {source} and {claim}: role and text of each."""
    endpoint_name: str = ""
    """Name of such a model at its endpoint."""
    parameters: dict[str, Any] = {}
    """Parameters of its requests."""
    verdict: str = ""
    """Pattern that ends where the verdict of its reply begins; empty: at the first token."""
    supported: str = ""
    """Word of the verdict that means supported."""
    unsupported: str = ""
    max_tokens: int = 1
    """Longest reply of such a model."""
    question: str = ""
    """First text of a model that marks tokens, with a question."""
    passage: str = "{text}"
    """How each passage is written into {source}."""
    words: tuple[int, int] = (0, 1)
    """Ids of the tokens that mean not supported and supported."""
    tokens: int
    source_tokens: int = 0
    """0: what the input leaves."""
    languages: str
    licence: str
    published: str
    source: str
    task: str = ""
    """Task of the export to ONNX; empty: the model is asked at an endpoint."""

    def render(self, question: str, passages: list[str], claim: str) -> tuple[str, str]:
        """Return the input of the model: one text, or the two texts of a model that marks tokens.

        >>> load_open_models()["minicheck"].render("", ["It is old."], "It is new.")
        ('predict: It is old.</s>It is new.', '')
        """
        template = self.question if question and self.question else self.text
        fields = self._list_fields(question, passages, claim)
        return (_fill(template, fields), claim if self.reads == "marks" else "")

    def render_messages(self, question: str, passages: Sequence[str], claim: str) -> tuple[tuple[ModelRole, str], ...]:
        """Return the messages to a model behind an endpoint, role and text of each.

        >>> load_open_models()["granite-guardian"].render_messages("", ["It is old."], "It is new.")
        (('system', 'groundedness'), ('context', 'It is old.'), ('assistant', 'It is new.'))
        """
        fields = self._list_fields(question, passages, claim)
        return tuple((role, _fill(text, fields)) for role, text in self.messages)

    def _list_fields(self, question: str, passages: Sequence[str], claim: str) -> dict[str, str]:
        source = "\n".join(
            _fill(self.passage, {"number": str(number), "text": text}) for number, text in enumerate(passages, 1)
        )
        return {"question": question, "count": str(len(passages)), "source": source, "claim": claim}


def _fill(template: str, fields: dict[str, str]) -> str:
    """Fill a template in one pass, so that braces of a text are left as they are."""
    pieces = []
    for number, piece in enumerate(template.split("{")):
        name, brace, rest = piece.partition("}")
        pieces.append(fields[name] + rest if number and brace and name in fields else ("{" if number else "") + piece)
    return "".join(pieces)


@cache
def load_open_models() -> dict[str, OpenModel]:
    """Load the table of the models, by name.

    >>> sorted(name for name, model in load_open_models().items() if model.messages)
    ['bespoke-minicheck', 'granite-guardian', 'granite-guardian-vllm', 'lynx']
    """
    text = (files("ragfault.judges") / "open_models.toml").read_text(encoding="utf-8")
    return msgspec.convert(parse_toml(text, "open_models.toml"), dict[str, OpenModel])


def locate_open_model(name: str, address: str) -> Path:
    """Return the folder of a model by its name: the one that the address names, else that of the hub's cache.

    Raises UsageError if it is not there, or the cache has another revision than the one whose format was read.
    """
    if name not in load_open_models():
        raise UnknownName("open model", name, load_open_models())
    model = load_open_models()[name]
    location, _, allowed = address.partition("?")
    if allowed not in ("", "revision=any"):
        raise UsageError(f'{name}:{address}: after "?" comes revision=any, which takes any revision of the model.')
    if location and not HUB_NAME.fullmatch(location) and not Path(location).is_dir():
        raise UsageError(f"there is no folder {location}. {_describe_fetching(name, model)}")
    if location and Path(location).is_dir():
        return Path(location)
    snapshot = locate_snapshot(location or model.repository)
    if snapshot is None:
        place = f"{location} is neither a folder here nor" if location else f"{model.repository} is not"
        raise UsageError(f"{place} in the hub's cache. {_describe_fetching(name, model)}")
    if model.revision and snapshot.name != model.revision and not allowed:
        raise UsageError(
            f"the cache has revision {snapshot.name[:12]} of {model.repository}, and the input format was read at "
            f"{model.revision[:12]}. Download that one, or take this one with --judge {name}:{location}?revision=any"
        )
    return snapshot


def _describe_fetching(name: str, model: OpenModel) -> str:
    revision = model.revision or "main"
    return (
        f"Fetch it with: hf download {model.repository} --revision {revision} --local-dir {name}; export it with: "
        f"optimum-cli export onnx --model {name} --task {model.task} {name}; then name the folder, {name}:{name}"
    )
