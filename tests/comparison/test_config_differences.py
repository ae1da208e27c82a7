"""Configurations of two runs: changed settings are named, secrets are not, and the evidence decides about each."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command
from ragfault.comparison.attribution.config_differences import match_settings
from ragfault.comparison.bisection import bisect
from ragfault.comparison.records import Bisection, Suspect
from ragfault.comparison.stages.ranking import NO_EVIDENCE
from ragfault.comparison.stages.setting_names import find_stage
from ragfault.io.runs.run import Run
from ragfault.model.errors import InputError
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.html import render_html_page
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from sample_runs import evaluate_system, make_verdicts

OLD = """
retriever: {top_k: 5, chunk_size: 512}
llm: {model: small-1, temperature: 0.1, api_key: hidden-one}
database_url: postgres://reader:hunter2@db/rag
logging: {level: info}
prompts: {system: "Answer from the passages only, and cite each of them by its number."}
"""
NEW = """
retriever: {top_k: 5, chunk_size: 128}
llm: {model: small-2, temperature: 0.1, api_key: hidden-two}
database_url: postgres://reader:hunter3@db/rag
logging: {level: debug}
prompts: {system: "Answer from the passages, and from what you know where they do not say."}
"""


ALIASES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Two runs with the same chunks, the second of which invents claims."""
    place = tmp_path_factory.mktemp("configs")
    new = [
        (replace(trace, answer=f"{trace.answer} More."), seen) for trace, seen in make_verdicts(150, 1, grounding=0.4)
    ]
    return evaluate_system(place / "old", make_verdicts(150, 1)), evaluate_system(place / "new", new)


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("files")
    (place / "a.yaml").write_text(OLD)
    (place / "b.yaml").write_text(NEW)
    return place / "a.yaml", place / "b.yaml"


@pytest.fixture(scope="module")
def matched(runs: tuple[Run, Run], configs: tuple[Path, Path]) -> Bisection:
    return match_settings(bisect(*runs), *configs)


def test_the_evidence_decides_about_each_changed_setting(matched: Bisection):
    """Identical chunks exclude the chunker, generation supports its own settings, and nothing is known of a logger."""
    assert matched.faults[0].layer == "generation"
    outcomes = {setting.setting: setting.outcome for setting in matched.settings}
    assert outcomes["retriever.chunk_size"] == "excluded"
    assert outcomes["logging.level"] == "unknown"
    suspects = {row.stage for row in matched.faults[0].suspects if row.evidence != NO_EVIDENCE}
    for key, stage in (("llm.model", "model"), ("prompts.system", "prompt")):
        assert outcomes[key] == ("supported" if stage in suspects else "possible")
    assert "llm.temperature" not in outcomes  # it did not change
    assert "retriever.top_k" not in outcomes
    supported = "Changed in the configuration and supported by the evidence: " in matched.sentence
    assert supported == ("supported" in outcomes.values())


def test_every_format_names_the_settings_and_no_secret(matched: Bisection):
    """Path, values and reason are in each format; keys, passwords and long texts are in none."""
    for text in (
        render_terminal(build_bisection(matched), width=300),
        html.unescape(render_markdown(build_bisection(matched))),
        html.unescape(render_html_page(build_bisection(matched), "bisection")),
        encode_document(matched),
    ):
        assert "retriever.chunk_size: 512 → 128" in text
        assert "identical chunks on every pair exclude it" in text
        assert "llm.api_key: changed (masked)" in text
        for secret in ("hidden-one", "hidden-two", "hunter2", "hunter3", "Answer from the passages"):
            assert secret not in text


def test_the_command_takes_two_files_after_config(
    runs: tuple[Run, Run], configs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """`--config a.yaml b.yaml` are the configurations; a lone `--config` is the settings file, as for every verb."""
    paths = [str(run.path) for run in runs]
    assert run_command(["bisect", *paths, "--config", *map(str, configs), "--format", "json"]) == 1
    assert {entry["setting"] for entry in json.loads(capsys.readouterr().out)["settings"]} >= {"llm.model"}
    settings = tmp_path / "ragfault.toml"
    settings.write_text("[compare]\nmargin = 0.05\n")
    assert run_command(["bisect", *paths, "--config", str(settings), "--format", "json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert plain["settings"] == []
    margins = {change["metric"]: change["margin"] for change in plain["comparison"]["changes"]}
    assert margins["groundedness"] == 0.05
    assert run_command(["bisect", *paths, str(configs[0])]) == 2
    assert "the two files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "stage"),
    [
        ("retriever.topK", "top-k"),
        ("similarity_top_k", "top-k"),
        ("reranker.top_k", "reranker"),
        ("generation.max_new_tokens", "max tokens"),
        ("splitter.overlap", "chunker"),
        ("vectorStore.hnsw.ef_search", "index"),
        ("retrieval.filters[0].field", "filter"),
        ("llm.topP", "decoding"),
        ("prompts.answer", "prompt"),
        ("telemetry.port", None),
    ],
)
def test_names_point_to_stages(key: str, stage: str | None):
    """The words of a path name its stage, however they are joined."""
    assert find_stage(key) == stage


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.toml", "x = ", "not valid TOML"),
        ("a.json", "{", "not valid JSON"),
        ("a.yaml", "a: [1", "not valid YAML"),
        ("a.yaml", "!!python/object/apply:os.system ['exit']", "not valid YAML"),
        ("a.yaml", "- 1\n- 2", "holds no table"),
        ("a.ini", "[a]", "not a configuration file by its name"),
        ("a.json", json.dumps({"a": {str(at): at for at in range(6000)}}), "more than 5,000 settings"),
        ("a.yaml", ALIASES, "more than"),
        ("a.yaml", "a: &a {b: *a}", "more than"),
        ("a.json", " " * 1_000_001, "larger than 1 MB"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, matched: Bisection, name: str, content: str, problem: str):
    """Broken, huge, endless or executable files end in an error that says so."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=problem):
        match_settings(matched, tmp_path / name, tmp_path / name)


def test_json_toml_and_yaml_of_one_configuration_are_the_same(tmp_path: Path, matched: Bisection):
    """Three spellings of one configuration differ in nothing."""
    (tmp_path / "a.json").write_text('{"retriever": {"top_k": 5, "filters": [{"field": "lang"}]}}')
    (tmp_path / "a.toml").write_text('[retriever]\ntop_k = 5\n[[retriever.filters]]\nfield = "lang"\n')
    (tmp_path / "a.yml").write_text("retriever:\n  top_k: 5\n  filters:\n  - field: lang\n")
    for name in ("a.toml", "a.yml"):
        result = match_settings(matched, tmp_path / "a.json", tmp_path / name)
        assert result.settings == ()
        assert result.sentence.endswith("The configuration files do not differ in any setting.")


def test_a_suspect_without_evidence_supports_no_setting(matched: Bisection, configs: tuple[Path, Path]):
    """A stage that is named because it is usual in the branch makes its settings possible, an observation supported."""
    [fault] = matched.faults[:1]
    outcomes = []
    for evidence in (NO_EVIDENCE, "other answers from the same chunks"):
        suspects = (Suspect(stage="model", probability=0.5, evidence=evidence),)
        bisection = replace(matched, faults=(replace(fault, suspects=suspects),), settings=())
        rows = match_settings(bisection, *configs).settings
        outcomes += [row.outcome for row in rows if row.setting == "llm.model"]
    assert outcomes == ["possible", "supported"]
