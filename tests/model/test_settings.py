"""Laws of records of settings: what is declared once holds for keywords, records and options."""

from __future__ import annotations

import inspect

import click
import pytest

from ragfault.cli.evaluate import evaluate as evaluate_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.rescorer import rescore
from ragfault.evaluation.settings import EvaluationSettings, RescoringSettings
from ragfault.io.reading_settings import ReadingSettings
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Trace
from ragfault.model.settings import Settings

RECORDS = (ReadingSettings, EvaluationSettings, RescoringSettings)


@pytest.mark.parametrize("record", RECORDS)
def test_every_field_is_declared_with_a_sentence(record: type[Settings]):
    """No field of a record of settings is without its declaration, and each says in a sentence what it sets."""
    assert set(record.declared) == set(record.__struct_fields__)
    assert all(setting.sentence.endswith(".") for setting in record.declared.values())
    assert record() == record(**{name: setting.default for name, setting in record.declared.items()})


@pytest.mark.parametrize(("function", "record"), [(evaluate, EvaluationSettings), (rescore, RescoringSettings)])
def test_the_parameters_of_a_function_are_the_fields_of_its_record(function, record):
    """Each field is a keyword with its default, behind the own parameters of the function."""
    parameters = inspect.signature(function).parameters
    keywords = {name: taken.default for name, taken in parameters.items() if taken.kind is taken.KEYWORD_ONLY}
    assert keywords == {name: setting.default for name, setting in record.declared.items()}


def test_each_field_with_a_flag_is_an_option_of_its_command():
    """The command has an option for each field, with the range and the choices that are declared."""
    options = {option.name: option for option in evaluate_command.params if isinstance(option, click.Option)}
    for name, setting in EvaluationSettings.declared.items():
        if setting.flag is None:
            assert name not in options or name == "options"
            continue
        if setting.choices:
            assert tuple(options[name].type.choices) == setting.choices
        if setting.kind is int:
            assert options[name].type.min == setting.bounds.ge


def test_keywords_and_a_record_give_the_same_run(tmp_path):
    """An evaluation with settings as a record is the one with the same keywords."""
    traces = [Trace(id="1", query="When?", answer="At noon.")]
    by_keywords = evaluate(traces, tmp_path / "a", judge="none", metrics=["error"])
    by_record = evaluate(traces, tmp_path / "b", settings=EvaluationSettings(judge="none", metrics=["error"]))
    assert list(by_keywords.scores()) == list(by_record.scores())
    with pytest.raises(UsageError):
        evaluate(traces, tmp_path / "c", EvaluationSettings(), judge="none")


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("workers", 0, UsageError),
        ("workers", True, UsageError),
        ("batch", 1.5, UsageError),
        ("gold", "aply", UnknownName),
        ("turns", "first", UnknownName),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_the_record(field, value, error):
    """Numbers out of range and choices that do not exist are errors that name the field."""
    with pytest.raises(error, match=field):
        EvaluationSettings(**{field: value})


def test_a_keyword_that_is_no_field_is_refused_with_the_nearest(tmp_path):
    """A slip in a keyword is an error before any work, and names what there is."""
    with pytest.raises(UnknownName, match='Did you mean "workers"'):
        evaluate([], tmp_path / "run", worker=2)
