"""Inference of the fields of records: the assignment of columns to fields that has the highest sum of scores.

An assignment that is not better than the next by `MARGIN` is not chosen: the reader asks which one is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ragfault.io.formats.columns import Column, ColumnMap, RawRecord, list_columns, overlaps
from ragfault.io.formats.conversations import ANSWER_KEYS, find_text
from ragfault.io.formats.field_names import is_record_metadata, rank_fields, strip_places
from ragfault.io.formats.leftovers import UncertainColumns, describe_other_set, find_labelled_text, format_columns
from ragfault.io.formats.passages import classify
from ragfault.io.formats.paths import ABSENT, get_path, list_numbered, list_paths
from ragfault.io.formats.scores import (
    FIELD_KINDS,
    MAIN_FIELDS,
    OWN_LAYOUTS,
    ColumnScore,
    ask_share,
    is_answer_key,
    is_content,
    is_joined,
    is_named,
    names_nothing,
    score_content,
    score_name,
    split_names,
    takes_parts,
)
from ragfault.io.formats.texts import parse_list_text
from ragfault.model.errors import InputError

MARGIN = 0.9
"""Least difference of the scores of two assignments of which the better one is chosen without a question."""


class Inference(NamedTuple):
    """The columns of each field, and what to say about them."""

    columns: ColumnMap
    notes: tuple[str, ...] = ()
    """Columns that were passed over, with the one that was taken."""
    metadata: tuple[str, ...] = ()
    """Columns that no field takes."""
    filled: frozenset[str] = frozenset()
    """Fields that some column fills."""
    bases: Mapping[str, str] = {}
    """Field → by what its column was recognised."""


Plan = dict[str, ColumnScore]
"""Field → the column that it is read from, with its score."""


def infer_columns(
    samples: Sequence[RawRecord],
    known: ColumnMap,
    given: Iterable[str],
    name: str,
    filled_before: Iterable[str] = (),
    labeled: bool = False,
) -> Inference:
    """Infer which columns are which fields; what is `known` stays, and `given` by the user is final.

    Fields that were `filled_before`, by other records, are not asked for again; of a `labeled` set none is asked for.

    Raises `UncertainColumns` if no assignment is clearly the best, `InputError` if no column may be the query.

    >>> record = {"ask": "When?", "model_reply": "In 1040.", "docs": ["Oslo, 1040"], "tag": "a"}
    >>> infer_columns([record], {"query": ("ask",)}, (), "t.jsonl").columns
    {'query': ('ask',), 'chunks': ('docs',), 'answer': ('model_reply',)}
    """
    columns = list_columns(samples)
    is_asked = known.get("query") or any(
        field in ("query", "history") for column in columns for field, _ in rank_fields(strip_places(column.path))
    )
    if not labeled and not is_asked:
        columns = list_columns(samples, enter=True)
    known = _drop_foreign_fields(known, set(given), columns)
    table = _Table(samples, columns, known, set(given))
    table.take(table.find_named_plan())
    for field in (field for field in FIELD_KINDS if field not in MAIN_FIELDS):
        table.take(find_best_plan({field: table.list_candidates(field)}))
    table.take_retrieved_names()
    table.note_conversation()
    if labeled:
        table.take_claims()
    else:
        _check_certainty(table, name, set(filled_before))
    notes = [
        f"`{column.path}` joins names ({', '.join(names[:2])} …), but no contexts are joined like them"
        for column in columns
        if not overlaps(column.path, table.used_paths) and (names := split_names(column))
    ]
    metadata = tuple(_list_metadata(samples, table.used_paths))
    order = dict.fromkeys((*(field for field, paths in known.items() if paths), *FIELD_KINDS, *table.inferred))
    inferred = {field: table.inferred[field] for field in order if field in table.inferred}
    return Inference(inferred, (*table.notes, *notes), metadata, frozenset(table.filled), table.bases)


class _Table:
    """The columns of a file, with the fields that are assigned so far."""

    def __init__(self, samples: Sequence[RawRecord], columns: list[Column], known: ColumnMap, given: set[str]) -> None:
        self.samples, self.columns, self.given = samples, columns, given
        self.inferred: ColumnMap = dict(known)
        self.filled = given | {
            field
            for field, paths in known.items()
            if any(get_path(sample, path) not in (ABSENT, None, "") for path in paths for sample in samples)
        }
        self.used_paths = [path for field in self.filled for path in known.get(field, ()) if not path.startswith("+")]
        self.notes: list[str] = []
        self.bases: dict[str, str] = {}
        self.named: Plan = {}
        """The columns of the main fields that were recognised by their names."""
        self.rivals: list[tuple[float, Plan]] = []
        """Plans that differ from the one taken, with how much less they score."""

    def list_candidates(self, field: str) -> list[ColumnScore]:
        """List the columns whose name and content fit a field, the best first."""
        if field in self.filled:
            return []
        columns = self.columns
        if field.startswith("chunks."):
            joined = [c._replace(kind="codes") for c in columns if is_joined(c, self.inferred, self.samples)]
            is_open = takes_parts(self.inferred, self.samples) or self.lacks_chunks(field)
            columns = joined or (columns if is_open else [])
        used = [path for path in self.used_paths if not is_record_metadata(path)]
        scores = [
            score
            for column in columns
            if not overlaps(column.path, used)
            and (score := score_name(field, column, self.columns, self.inferred)) is not None
            and not (
                field in ("gold", "reference")
                and names_nothing(field, column, self.columns, self.inferred, self.samples)
            )
        ]
        return sorted(scores, key=lambda score: -score.value)

    def lacks_chunks(self, field: str) -> bool:
        """Tell whether the names of the chunks are all that is recorded of them: their ids, or else their documents."""
        known = self.filled & {"chunks", "chunks.id"}
        return field in ("chunks.id", "chunks.document") and not known and not self.inferred.get("chunks")

    def find_named_plan(self) -> Plan:
        """Find the best plan of the main fields by the names of the columns, and its rivals."""
        options = {field: self.list_candidates(field) for field in MAIN_FIELDS}
        self.named = best = find_best_plan(options)
        self.rivals = list_rivals(options, best)
        for field, score in best.items():
            taken = [other.column.path for other in best.values()]
            passed = [
                other.column.path
                for other in options[field]
                if other.column.values != score.column.values and not overlaps(other.column.path, taken)
            ]
            self.notes += [f"{field} from {score.column.path} rather than {path}" for path in passed[:3]]
        return best

    def take(self, plan: Plan) -> None:
        """Assign the columns of a plan."""
        for field, score in plan.items():
            path = score.column.path.replace("[0]", "[]") if field.startswith("chunks") else score.column.path
            self.inferred[field] = (*self.inferred.get(field, ()), path)
            self.filled.add(field)
            self.used_paths.append(score.column.path)
            self.bases[field] = score.basis

    def take_retrieved_names(self) -> None:
        """Take a list in which names of gold are found as the ids of the chunks, if they have none.

        Where their texts are recorded, the list has to be as long as that of the texts.
        """
        has_texts = "chunks" in self.filled
        if "chunks.id" in self.filled or "gold" not in self.filled:
            return
        if has_texts and not takes_parts(self.inferred, self.samples):
            return
        key = self.collect_lists("gold")
        texts = self.collect_lists("chunks")
        for column in self.columns:
            lists = [read_names(get_path(sample, column.path)) for sample in self.samples]
            hits = sum(bool({*names} & {*gold}) for names, gold in zip(lists, key, strict=True))
            fits = column.kind in ("codes", "words") and any(len(names) > 1 for names in lists)
            fits = fits and (not has_texts or list(map(len, lists)) == list(map(len, texts)))
            if fits and hits >= HIT_SHARE * len(lists) and not overlaps(column.path, self.used_paths):
                self.take({"chunks.id": ColumnScore(column, hits, "names of gold in it")})
                return

    def collect_lists(self, field: str) -> list[list[str]]:
        """Collect the list that each sample has for a field."""
        paths = self.inferred.get(field, ())
        return [[name for path in paths for name in read_names(get_path(sample, path))] for sample in self.samples]

    def note_conversation(self) -> None:
        """Count the query as filled if it is the last turn of the history."""
        if "query" not in self.filled and "history" in self.filled:
            values = [get_path(sample, path) for path in self.inferred["history"] for sample in self.samples]
            self.filled |= {"query"} if "conversation" in map(classify, values) else set()

    def take_claims(self) -> None:
        """Take the claim and the evidence of a labelled set; its query may be that of no column, which is empty."""
        for field, words in CLAIM_NAMES.items():
            column = next((c for word in words for c in self.columns if c.path == word and c.kind in CLAIM_KINDS), None)
            if field not in self.filled and column is not None and not overlaps(column.path, self.used_paths):
                self.inferred[field] = (column.path,)

    def list_content_options(self, free: Sequence[str]) -> dict[str, list[ColumnScore]]:
        """List for each free field the columns whose names say nothing and whose content looks like it."""
        spare = [column for column in self.columns if not overlaps(column.path, self.used_paths)]
        content = [column for column in spare if is_content(column) and not self.is_explained(column)]
        content = [c for c in content if not any(other.path.startswith(f"{c.path}[].") for other in content)]
        texts = self.collect_texts()
        options = {field: list_content_scores(field, content, texts) for field in free}
        if "query" in free and not options["query"]:
            asking = [column for column in spare if column.kind == "text" and ask_share(column) > ASKING_SHARE]
            options["query"] = list_content_scores("query", asking, texts)
        return options

    def is_explained(self, column: Column) -> bool:
        """Tell whether the name of a column, or of what it lies in, says a field that another column fills.

        Passages are explained by their own name alone: a reply may hold what was retrieved beside what was said. What
        holds the question and more, such as a `message` that is an object, explains nothing; what repeats the answer
        is explained.
        """
        answers = [get_path(sample, path) for path in self.inferred.get("answer", ()) for sample in self.samples]
        if all(value in answers or [value] in answers for value in column.values):
            return True
        parts = column.path.split(".")
        used = self.used_paths
        shared = [i for i in range(1, len(parts)) if any(path.startswith(".".join(parts[:i]) + ".") for path in used)]
        is_passages = column.kind == "passages" and "chunks" not in self.filled
        parts = parts[-1:] if is_passages else parts[max(shared, default=0) :]
        return any(field in self.filled for part in parts for field, _ in rank_fields(part)[:1])

    def collect_texts(self) -> list[str]:
        """Collect what the chunks and answers of the samples say, in lower case."""
        return [
            str(value).lower()
            for field in ("chunks", "answer", "reference")
            for path in self.inferred.get(field, ())
            for sample in self.samples
            if (value := get_path(sample, path)) not in (ABSENT, None)
        ]


HIT_SHARE = 0.2
"""Share of the records in which a list of what was retrieved has a name of the gold."""


def read_names(value: Any) -> list[str]:
    """Read a list of names, which may be printed as one text.

    >>> read_names('["a.md", "b.md"]'), read_names([{"text": "At nine."}])
    (['a.md', 'b.md'], [])
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    return [str(item) for item in value if isinstance(item, (str, int))] if isinstance(value, list) else []


def find_best_plan(options: Mapping[str, Sequence[ColumnScore]]) -> Plan:
    """Find the plan with the highest sum of scores, in which no column, or part of one, is read as two fields.

    >>> answer = ColumnScore(Column("a", "text", ("At nine.",), 0), 5.0, "name")
    >>> other = ColumnScore(Column("b", "text", ("At ten.",), 1), 4.0, "name")
    >>> {f: s.column.path for f, s in find_best_plan({"answer": [answer], "reference": [answer, other]}).items()}
    {'answer': 'a', 'reference': 'b'}
    """
    fields = [field for field in options if options[field]]
    rest = [
        sum(max(score.value for score in options[field]) for field in fields[place:]) for place in range(len(fields))
    ]
    best: tuple[float, Plan] = (0.0, {})

    def search(place: int, plan: Plan, total: float) -> None:
        nonlocal best
        if place == len(fields):
            best = max(best, (total, plan), key=lambda ranked: ranked[0])
            return
        if total + rest[place] <= best[0]:
            return
        used = [score.column.path for score in plan.values()]
        for score in options[fields[place]]:
            if not overlaps(score.column.path, used):
                search(place + 1, {**plan, fields[place]: score}, total + score.value)
        search(place + 1, plan, total)

    search(0, {}, 0.0)
    return best[1]


def measure_plan(plan: Plan) -> float:
    """Sum the scores of a plan."""
    return sum(score.value for score in plan.values())


def list_rivals(options: Mapping[str, Sequence[ColumnScore]], best: Plan) -> list[tuple[float, Plan]]:
    """List the plans in which one field is read from something else or not at all, with how much less they score.

    A column that holds the same is not something else.
    """
    rivals: list[tuple[float, Plan]] = []
    for field, taken in best.items():
        others = {str(score.column.values): [score] for score in reversed(options[field])}
        others.pop(str(taken.column.values))
        for choice in list(others.values()) or [[]]:
            plan = find_best_plan({**options, field: choice})
            rivals.append((measure_plan(best) - measure_plan(plan), plan))
    return sorted(rivals, key=lambda rival: rival[0])


ASKING_SHARE = 0.5
"""A column of whose texts more end in a question mark is that of the query if no other is, whatever its name."""


def list_content_scores(field: str, columns: Sequence[Column], texts: Sequence[str]) -> list[ColumnScore]:
    """List the columns whose content looks like a field."""
    return [score for column in columns if (score := score_content(field, column, texts)) is not None]


def _check_certainty(table: _Table, name: str, filled_before: set[str]) -> None:
    """Raise `UncertainColumns` if another plan is about as good, `InputError` if no column may be the query."""
    table.filled |= filled_before
    listing = format_columns(table.samples)
    has_query = "query" in table.filled
    is_partial = not has_query or not table.filled & {"chunks", "answer"}
    if is_partial and (kind := describe_other_set(table.columns, has_query)) is not None:
        raise InputError(f"{name}: {kind}; there are: {listing}")
    if is_partial and has_query and (text := find_labelled_text(table.columns)) is not None:
        reason = f"`{text}` is labelled, and may be what was retrieved or what was answered"
        if not table.filled & {"chunks", "answer"}:
            raise UncertainColumns(f"{name}: {reason}; there are: {listing}", [{"chunks": text}, {"answer": text}])
    filled = table.filled | ({"chunks"} if "chunks.id" in table.filled else set())
    free = [field for field in MAIN_FIELDS if field not in filled]
    options = table.list_content_options(free)
    content = find_best_plan(options)
    if not has_query and "query" not in content:
        raise InputError(f"{name}: {_explain_missing_query(table, listing)}")
    close = [(loss, {**plan, **content}) for loss, plan in table.rivals if loss < MARGIN]
    close += [(loss, {**table.named, **plan}) for loss, plan in list_rivals(options, content) if loss < MARGIN]
    if not close:
        return
    plans = [{**table.named, **content}, *(plan for _, plan in sorted(close, key=lambda rival: rival[0]))]
    uncertain = [field for field in MAIN_FIELDS if len({_name_column(plan, field) for plan in plans}) > 1]
    reasons = [] if has_query else ["no column for `query`"]
    reasons += [f"`{content[field].column.path}` looks like {FIELD_LOOKS[field]}" for field in free if field in content]
    for field in (field for field in uncertain if field not in content):
        names = dict.fromkeys(f"`{plan[field].column.path}`" for plan in plans if field in plan)
        reasons.append(f"{', '.join(names)} may each be the {field}")
    maps = [make_map(plan, uncertain, plans) for plan in plans]
    raise UncertainColumns(f"{name}: {', '.join(reasons)}; there are: {listing}", maps)


def _name_column(plan: Plan, field: str) -> str:
    return plan[field].column.path if field in plan else ""


def make_map(plan: Plan, uncertain: Sequence[str], plans: Sequence[Plan]) -> dict[str, str]:
    """Make the column map that decides the uncertain fields as a plan does.

    A column that another plan reads as a field, and this one does not, is mapped to metadata.
    """
    column_map = {field: plan[field].column.path for field in uncertain if field in plan}
    for path in (_name_column(other, field) for other in plans for field in uncertain if field not in plan):
        if path and path not in column_map.values():
            column_map[f"metadata.{path.replace('[0]', '').rpartition('.')[2]}"] = path
    return column_map


def _explain_missing_query(table: _Table, listing: str) -> str:
    paths = table.inferred.get("query", ())
    empty = next((path for path in paths if any(path in sample for sample in table.samples)), None)
    lacking = "no column for `query`" if empty is None else f"the column `{empty}` is empty"
    return f"{lacking}; there are: {listing}. Name the one that holds the question: --map query=COLUMN"


FIELD_LOOKS = {
    "query": "the question",
    "chunks": "retrieved contexts",
    "answer": "an answer",
    "reference": "a reference",
}
CLAIM_KINDS = ("text", "word", "texts", "passages")
CLAIM_NAMES = {
    "answer": ("claim", "hypothesis", "statement", "sentence", "summary"),
    "chunks": ("evidence", "premise", "source", "source_text", "article"),
}
"""Names in sets of claims with their evidence, which have no query."""


def _drop_foreign_fields(known: ColumnMap, given: set[str], columns: list[Column]) -> ColumnMap:
    """Drop the columns of a shape that hold something else: steps and citations of other tools, and the answer key."""
    fields = dict(known)
    for column in columns:
        is_own = OWN_LAYOUTS.get(column.path)
        if is_own is not None and column.path not in given and not all(map(is_own, column.values)):
            fields.pop(column.path, None)
        is_list = column.kind == "codes" and any(len(read_names(value)) > 1 for value in column.values)
        is_key = not given & {"answer", "reference"} and is_answer_key(column, columns)
        if is_key or (column.path not in given and (is_list or _is_around_answer(column, columns))):
            fields["answer"] = tuple(path for path in fields.get("answer", ()) if path != column.path)
    return {field: paths for field, paths in fields.items() if paths or field in given or not known.get(field)}


def _is_around_answer(column: Column, columns: Sequence[Column]) -> bool:
    """Tell whether a column is an object around the answer, under a name that no reply has, such as `answerText`."""
    if column.kind != "object" or any(find_text(value, ANSWER_KEYS) for value in column.values):
        return False
    return any(
        other.path.startswith(f"{column.path}.") and other.kind in ("text", "word") and is_named(other.path, "answer")
        for other in columns
    )


def _list_metadata(samples: Sequence[RawRecord], used_paths: list[str]) -> list[str]:
    """List the columns that no field takes, as paths where a part of an object is taken."""
    names: dict[str, None] = {}
    for sample in samples:
        for path, value in list_paths(sample):
            above = any(path.startswith(f"{name}.") for name in names)
            inside = "[" in path or any(other.startswith((f"{path}.", f"{path}[")) for other in used_paths)
            root = path.split(".", 1)[0]
            starred = any(
                "*" in other and (list_numbered([path], other) or list_numbered([root], other)) for other in used_paths
            )
            if not (above or inside or starred or overlaps(path, used_paths)) and value not in (None, ""):
                names[path] = None
    return list(names)
