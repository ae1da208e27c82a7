"""Open models by name: the input that each is written, how its output is read, and where it is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without

skip_without("onnx", reason="the tests build models with onnx")

import numpy as np

from onnx_models import list_vocabulary, save
from ragfault import Chunk, Trace
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import ENDPOINT_MODELS, OPEN_MODELS, load_judge
from ragfault.judges.open_models import load_open_models
from ragfault.model.errors import UsageError

CHUNKS = (Chunk(id="a", text="the harbour office opens at seven"), Chunk(id="b", text="dogs are allowed"))
TRACE = Trace(id="1", query="when does it open", chunks=CHUNKS, answer="The harbour office opens at seven.")
READ = {
    "lettucedetect": (
        "Briefly answer the following question:\nWhen?\nBear in mind that your response should be strictly based on "
        "the following 2 passages:\npassage 1: One {x}.\npassage 2: Two.\nIn case the passages do not contain the "
        'necessary information to answer the question, please reply with: "Unable to answer based on given '
        'passages."\noutput:',
        "It is.",
    ),
    "minicheck": ("predict: One {x}.\nTwo.</s>It is.", ""),
    "minicheck-roberta": ("One {x}.\nTwo.</s>It is.", ""),
    "minicheck-deberta": ("One {x}.\nTwo.[SEP]It is.", ""),
    "factcg": (
        'One {x}.\nTwo.\n\nChoose your answer: based on the paragraph above can we conclude that "It is."?\n\n'
        "OPTIONS:\n- Yes\n- No\nI think the answer is ",
        "",
    ),
    "hhem": (
        "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: One {x}.\nTwo.\n\nHypothesis: It is.",
        "",
    ),
}

LYNX = (
    "Given the following QUESTION, DOCUMENT and ANSWER you must analyze the provided answer and determine whether it "
    "is faithful to the contents of the DOCUMENT. The ANSWER must not offer new information beyond the context "
    "provided in the DOCUMENT. The ANSWER also must not contradict information provided in the DOCUMENT. Output your "
    'final verdict by strictly following this format: "PASS" if the answer is faithful to the DOCUMENT and "FAIL" if '
    "the answer is not faithful to the DOCUMENT. Show your reasoning.\n\n"
    "--\nQUESTION (THIS DOES NOT COUNT AS BACKGROUND INFORMATION):\nWhen?\n\n"
    "--\nDOCUMENT:\nOne {x}.\nTwo.\n\n--\nANSWER:\nIt is.\n\n--\n\n"
    'Your output should be in JSON FORMAT with the keys "REASONING" and "SCORE":\n'
    '{"REASONING": <your reasoning as bullet points>, "SCORE": <your final score>}'
)
SENT = {
    "bespoke-minicheck": (
        (
            "system",
            "Determine whether the provided claim is consistent with the corresponding document. Consistency in this "
            "context implies that all information presented in the claim is substantiated by the document. If not, it "
            "should be considered inconsistent. Please assess the claim's consistency with the document by responding "
            'with either "Yes" or "No".',
        ),
        ("user", "Document: One {x}.\nTwo.\nClaim: It is."),
    ),
    "granite-guardian": (("system", "groundedness"), ("context", "One {x}.\nTwo."), ("assistant", "It is.")),
    "granite-guardian-vllm": (("context", "One {x}.\nTwo."), ("assistant", "It is.")),
    "lynx": (("user", LYNX),),
}
"""Messages to the models behind an endpoint, as their sources have them."""


def write_random(folder: Path, name: str, *, broken: bool = False) -> Path:
    """Write a tiny random model with the inputs and the output of a named one; a broken one gives NaN."""
    from onnx import TensorProto, helper, numpy_helper

    reads = load_open_models()[name].reads
    width = 250 if reads == "words" else 2
    table = np.random.default_rng(7).normal(size=(len(list_vocabulary()), width)).astype(np.float32)
    constants = [numpy_helper.from_array(table * np.nan if broken else table, "table")]
    constants.append(numpy_helper.from_array(np.array([1]), "axis"))
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows"])]
    shapes = {"marks": ["n", "length", 2], "start": ["n", "length", 2], "label": ["n", 2], "words": ["n", 1, width]}
    if reads in ("label", "words"):
        nodes.append(helper.make_node("ReduceMean", ["rows", "axis"], ["logits"], keepdims=int(reads == "words")))
    else:
        nodes.append(helper.make_node("Identity", ["rows"], ["logits"]))
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "length"])]
    if reads == "words":
        inputs.append(helper.make_tensor_value_info("decoder_input_ids", TensorProto.INT64, ["n", 1]))
    given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shapes[reads])]
    graph = helper.make_graph(nodes, "tiny", inputs, given, constants)
    kind = "TokenClassification" if reads == "marks" else "SequenceClassification"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return save(folder, model, {"architectures": [f"TinyFor{kind}"], "max_position_embeddings": 512})


def test_every_name_has_an_entry_with_its_source():
    """The names that a judge may have are those of the table, and each entry names where its format was read."""
    models = load_open_models()
    assert set(OPEN_MODELS) == set(READ)
    assert set(ENDPOINT_MODELS) == set(SENT) == {name for name, model in models.items() if model.messages}
    assert set(models) == {*READ, *SENT}
    assert all(model.source and model.repository and model.licence for model in models.values())


@pytest.mark.parametrize("name", READ)
def test_the_input_is_the_one_of_the_source(name: str):
    """Passages and claim stand in the model's own template, and braces of a text stay as they are."""
    assert load_open_models()[name].render("When?", ["One {x}.", "Two."], "It is.") == READ[name]


@pytest.mark.parametrize("name", SENT)
def test_the_messages_are_those_of_the_source(name: str):
    """Roles and texts of the messages to a model behind an endpoint are those that its source sends."""
    model = load_open_models()[name]
    assert model.render_messages("When?", ["One {x}.", "Two."], "It is.") == SENT[name]
    assert f" {model.endpoint_name} " in load_judge(name).fingerprint


@pytest.mark.parametrize("name", OPEN_MODELS)
def test_a_model_of_each_architecture_judges_a_trace(name: str, tmp_path: Path):
    """A random model with the inputs and the output of the named one runs from its folder to verdicts."""
    judge = load_judge(f"{name}:{write_random(tmp_path / name, name)}")
    verdicts = judge.observe([TRACE])[0]
    assert judge.fingerprint.startswith(f"{name}/")
    assert not verdicts.failures
    assert 0 < verdicts.claim[0].p < 1


@pytest.mark.parametrize("name", ["minicheck", "hhem", "lettucedetect"])
def test_numbers_that_are_not_finite_fail_the_trace(name: str, tmp_path: Path):
    """A model that gives NaN fails each trace with the reason, and does not end the evaluation."""
    judge = load_judge(f"{name}:{write_random(tmp_path / name, name, broken=True)}")
    verdicts = observe_traces(judge, [TRACE])[0]
    assert "not finite" in verdicts.failures["*"]


def test_missing_weights_are_an_error_with_the_command_that_fetches_them(tmp_path: Path, monkeypatch):
    """Without the files the error names the repository, the revision and the export."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError) as error:
        load_judge("minicheck")
    model = load_open_models()["minicheck"]
    assert f"hf download {model.repository} --revision {model.revision}" in str(error.value)
    with pytest.raises(UsageError):
        load_judge("minicheck:no/such/folder/here")


def test_another_revision_is_refused_unless_asked_for(tmp_path: Path, monkeypatch):
    """A cached revision whose format was not read is taken only with revision=any."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = load_open_models()["hhem"]
    snapshots = tmp_path / f"models--{model.repository.replace('/', '--')}" / "snapshots"
    write_random(snapshots / "0123456789abcdef", "hhem")
    with pytest.raises(UsageError, match="revision=any"):
        load_judge("hhem")
    assert load_judge("hhem:?revision=any").observe([TRACE])[0].claim
    write_random(snapshots / model.revision, "hhem")
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs" / "main").write_text(model.revision)
    assert load_judge("hhem").observe([TRACE])[0].claim
    with pytest.raises(UsageError):
        load_judge("hhem:?revision=latest")
