"""Names of the fields in other tools: the one table of synonyms, for every reader.

A column is matched by its whole name first, in the order of `SYNONYMS`, then by the words of its name: `rag_answer` is
an answer, `expected_answer` a reference, `answer_model` neither.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ragfault.io.formats.field_words import join_words, split_words

SYNONYMS: dict[str, str] = {
    "query": "query user_input question user_query user_question query_text question_text query_str search_query "
    "user_message input prompt request message utterance user_prompt human_input instruction inputs q messages "
    "conversation dialog dialogue turns events",
    "history": "history chat_history conversation_history message_history dialog_history previous_turns messages "
    "conversation dialog dialogue turns transcript context_messages chat_transcript events",
    "chunks": "chunks retrieved_contexts retrieval_context retrieved_context retrieved_chunks retrieved_documents "
    "retrieved_docs retrieved_passages contexts source_documents source_nodes search_results passages documents docs "
    "context results hits matches nodes retrieved retrieval retrievals evidence evidences snippets passage chunk "
    "chunk_text passage_text document_text paragraphs paragraph knowledge sources document doc citations_text "
    "grounding_chunks file_search_results ctxs points retrieved_references retriever_resources",
    "answer": "answer response actual_output actual_answer generated_answer generated_text generated_response "
    "predicted_answer predicted_answers model_answer model_response rag_answer llm_answer llm_response "
    "system_answer bot_response final_answer output result prediction predictions generation completion "
    "reply replies assistant_response outputs choices output_text generations candidates hypothesis pred "
    "content sampled actual",
    "reference": "reference reference_answer ground_truth ground_truths ground_truth_answer expected_output "
    "expected_answer expected_response expected gold_answer golden_answer gold golden target targets ideal "
    "ideal_answer correct_answer reference_answers gold_answers expected_answers true_answer gt gt_answer "
    "ground_truth_output reference_output reference_outputs reference_response label_answer answer_key "
    "expected_outcome well_formed_answers answers solution references golden_response gt_answers",
    "facts": "facts expected_facts key_facts key_points nuggets expected_claims",
    "gold": "gold qrels reference_context_ids relevant_docs relevant_ids relevant_doc_ids relevant_documents gold_ids "
    "gold_doc_ids gold_chunk_ids gold_chunks gold_documents gold_contexts gold_passages expected_chunks "
    "expected_retrieved_context expected_ids expected_doc_ids expected_context reference_contexts reference_context "
    "ground_truth_contexts ground_truth_context ground_truth_ids supporting_facts positive_ids positive_ctxs positives "
    "relevant_chunks relevant_passages gt_contexts gold_spans retrieval_gt",
    "id": "id query_id qid question_id sample_id trace_id record_id example_id task_id interaction_id request_id "
    "case_id test_id row_id uid uuid guid _id id_ client_request_id query_uuid key",
    "conversation": "conversation_id session_id thread_id dialog_id dialogue_id chat_id session",
    "turn": "turn turn_id turn_index turn_number",
    "attempt": "attempt attempt_index attempt_number run_index run_number epoch repeat repeat_index repetition trial "
    "trial_index trial_number iteration",
    "answerable": "answerable is_answerable answerability is_impossible unanswerable is_unanswerable",
    "route": "route endpoint app_id",
    "time": "time timestamp created_at ts created",
    "model": "model model_name llm generator_model generator",
    "finish_reason": "finish_reason stop_reason finishreason stopreason done_reason",
    "steps": "steps",
    "error": "error error_message exception failure main_error",
    "citations": "citations",
    "latency.total": "latency_ms total_latency_ms duration_ms elapsed_ms response_time_ms execution_time_ms",
    "latency.retrieval": "retrieval_latency_ms retrieval_time_ms retrieval_ms",
    "latency.generation": "generation_latency_ms generation_time_ms generation_ms",
    "tokens.prompt": "prompt_tokens input_tokens",
    "tokens.completion": "completion_tokens output_tokens",
    "chunks.id": "retrieved_context_ids chunk_ids context_ids doc_ids document_ids passage_ids retrieved_ids "
    "retrieved_doc_ids retrieved_chunk_ids node_ids source_ids ids",
    "chunks.score": "scores retrieval_scores similarity_scores context_scores chunk_scores similarities "
    "relevance_scores passage_scores doc_scores document_scores reranker_scores",
    "chunks.document": "titles sources source_files urls file_names filenames context_sources document_names",
}
"""Field → names of columns, the most specific first."""


def _parse_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


QUERY_WORDS = _parse_words("question query prompt utterance input request ask asked")
CHUNK_WORDS = _parse_words(
    "context contexts chunk chunks passage passages document documents doc docs snippet snippets evidence "
    "node nodes hit hits retrieved retrieval retrieve retriever paragraph paragraphs ctx ctxs excerpt excerpts "
    "article articles"
)
RETRIEVED_WORDS = _parse_words("retrieved retrieval retriever")
PASSAGE_ID_WORDS = _parse_words("pid pids docid docids")
ANSWER_WORDS = _parse_words(
    "answer answers response responses output outputs reply replies completion prediction generation "
    "generated predicted result"
)
REPLY_WORDS = ANSWER_WORDS | _parse_words("choices candidates")
"""Words of what a message lies in that a model wrote."""
PREDICTED_WORDS = _parse_words("prediction predictions predicted pred generated generation hypothesis")
"""Words of an answer of the system, which make a column `answer` beside it the reference."""
SPEECH_WORDS = _parse_words("message msg utterance text turn said says content")
USER_WORDS = _parse_words("user human customer client")
ASSISTANT_WORDS = _parse_words("bot assistant ai agent model llm chatbot gpt")
"""Words that tell whose message a column holds."""
REJECTED_WORDS = _parse_words(
    "negative negatives incorrect wrong plausible distractor distractors bad rejected irrelevant"
)
"""Words of answers and passages that are none of the system and none of the answer key."""
REFERENCE_WORDS = _parse_words(
    "reference references ref refs gold golden expected ideal truth correct target gt gts groundtruth solution true"
)
RELEVANT_WORDS = _parse_words("relevant positive positives supporting oracle annotated")
"""Words of passages that people found to be right."""
PART_WORDS = {
    "chunks.id": _parse_words("id ids uid uids key keys ref refs"),
    "chunks.score": _parse_words("score scores sim sims similarity similarities distance distances cosine"),
    "chunks.document": _parse_words("title titles source sources url urls file files filename filenames"),
}
"""Last words of columns that stand parallel to the texts of the chunks, by what they hold."""
HISTORY_WORDS = _parse_words("history messages conversation dialog dialogue transcript turns")
METADATA_WORDS = _parse_words(
    "id ids uuid uid type kind score scores count counts len length time times latency tokens token url "
    "urls uri link name names model template embedding embeddings vector vectors quality correctness "
    "relevancy relevance relevant faithfulness groundedness metric metrics reason reasons reasoning "
    "explanation explanations rationale cost price num number level difficulty status language lang label "
    "labels category categories rating ratings feedback comment comments note notes version hash title "
    "titles source sources topic topics tag tags author user users date created updated at split domain "
    "dataset file path folder filename metadata meta info attributes config settings parameters params "
    "usage system instruction instructions rubric rubrics persona personas style criteria judge evaluator "
    "grade grades pass passed success verdict error errors trace logs log debug annotator experiment run "
    "snippet_html html thoughts thinking tool tools description summary keywords entities rank position "
    "index page locale country product route environment env release session agent by raw idx scenario assertion "
    "assert assertions span spans annotation annotations highlight highlights mentions votes evaluations steps"
)
"""Words of names that mark a column as metadata, whatever its text says."""
METADATA_CONTAINERS = _parse_words(
    "metadata meta additional_metadata metadatas config settings parameters params usage metrics scores "
    "feedback feedbacks evaluation evaluations evaluation_results metrics_data tags extra info attributes "
    "custom logprobs grading_result named_scores token_usage assessments hyperparameters model_config "
    "generation_config assert assertions headers runtime annotations annotation feedback_scores"
)
RECORD_METADATA = _parse_words("metadata meta additional_metadata extra info attributes custom")
"""Names of objects that are kept as metadata as a whole."""

PLACE_ABOVE = re.compile(r"[./]\*?[./][^./]+$")
"""The end of a path whose last name stands below a place, such as `hits.*.content`."""
PLACE = re.compile(r"\[(?:-?\d*|[^\[\]=~]+[=~][^\[\]]*)\]")
SEPARATORS = re.compile(r"[./:|]|__")


RANKS: dict[str, dict[str, int]] = {
    field: {join_words(name): rank for rank, name in reversed(list(enumerate(names.split())))}
    for field, names in SYNONYMS.items()
}
"""Field → joined name → its place in the table."""
CONTAINERS = frozenset(map(join_words, METADATA_CONTAINERS))
RECORD_CONTAINERS = frozenset(map(join_words, RECORD_METADATA))
PLAIN_WORDS = _parse_words("text texts str string content body list value values")
"""Last words of names that say only that something is written there."""
WORD_RANK = 100
"""Rank of a column that is matched by the words of its name."""


def is_metadata_container(name: str) -> bool:
    """Tell whether an object of this name is kept as metadata as a whole."""
    return join_words(SEPARATORS.split(name)[-1]) in CONTAINERS


def is_record_metadata(name: str) -> bool:
    """Tell whether an object of this name may hold what belongs to the record, such as its contexts."""
    return join_words(name) in RECORD_CONTAINERS


def is_negated_name(path: str) -> bool:
    """Tell whether a column says that no answer exists, such as `is_impossible`."""
    return bool(set(split_words(path)) & {"impossible", "unanswerable"})


def is_metadata_name(name: str) -> bool:
    """Tell whether the name alone marks a column as metadata.

    >>> is_metadata_name("judge_reason"), is_metadata_name("source_url"), is_metadata_name("reply")
    (True, True, False)
    """
    words = split_words(SEPARATORS.split(name)[-1])
    while words and words[-1].isdecimal():
        words = words[:-1]
    return not words or words[-1] in METADATA_WORDS | PASSAGE_ID_WORDS or words[0] in ("is", "has", "num", "n")


def is_filtered(path: str) -> bool:
    """Tell whether a path takes the items of a list whose key has a value, as in `steps[type=retriever].output`."""
    return any("=" in place or "~" in place for place in PLACE.findall(path))


def strip_places(path: str) -> str:
    """Strip the places in lists and the marks of numbers from a path.

    >>> strip_places("steps[type=retriever].output[]"), strip_places("context_*")
    ('steps.output', 'context_')
    """
    return PLACE.sub("", path).replace("*", "")


@lru_cache(4096)
def rank_fields(path: str) -> tuple[tuple[str, int], ...]:
    """Rank the fields that the name of a path may stand for, the lowest rank first.

    >>> rank_fields("user_input")[0], rank_fields("outputs.answer")[0], rank_fields("reference_outputs.answer")[0]
    (('query', 1), ('answer', 0), ('reference', 0))
    >>> rank_fields("zzz")
    ()
    """
    parts = [part for part in SEPARATORS.split(PLACE.sub("", path)) if part not in ("", "*")] or [path]
    words, above = split_words(parts[-1]), {word for part in parts[:-1] for word in split_words(part)}
    last, both = join_words(parts[-1]), join_words("_".join(parts[-2:]))
    if len(parts) > 1 and last in PLAIN_WORDS and (last != "content" or PLACE_ABOVE.search(path)):
        # `input.value`: the object says what it is
        words, last = split_words(parts[-2]), join_words(parts[-2])
        above = {word for part in parts[:-2] for word in split_words(part)}
    matches: dict[str, int] = {}
    for field, ranks in RANKS.items():
        rank = min(ranks.get(both, WORD_RANK), ranks.get(last, WORD_RANK))
        if rank < WORD_RANK:
            matches[field] = rank
    if above & REPLY_WORDS and set(words) & SPEECH_WORDS | {"messages"} & set(words) and "query" in matches:
        # the message of a reply
        matches = {"answer": matches["query"]}
    if above & REFERENCE_WORDS:
        rank = min(matches.pop("answer", WORD_RANK), matches.pop("query", WORD_RANK))
        if rank < WORD_RANK:
            matches.setdefault("reference", rank)
        if "chunks" in matches:
            matches.setdefault("gold", matches.pop("chunks"))
    if not matches and (only := _match_words(words, above)):
        matches[only] = WORD_RANK
    return tuple(sorted(matches.items(), key=lambda item: item[1]))


def _match_words(words: tuple[str, ...], above: set[str]) -> str | None:
    """Match a name by its words; None where a word marks it as something else."""
    words = tuple(word for word in words if not word.isdecimal())
    have = set(words)
    if not words or have & REJECTED_WORDS:
        return None
    if words[-1] in SPEECH_WORDS and bool(have & USER_WORDS) != bool(have & ASSISTANT_WORDS):
        return "query" if have & USER_WORDS else "answer"
    if have & RELEVANT_WORDS and have & (CHUNK_WORDS | PASSAGE_ID_WORDS | {"spans"}):
        return "gold"
    if have & PASSAGE_ID_WORDS:
        return "gold" if have & REFERENCE_WORDS else None
    part = _match_part(words)
    if part is not None:
        return part
    if words[-1] in METADATA_WORDS and not (have & CHUNK_WORDS and words[-1] in ("ids", "id")):
        return None
    if have & RETRIEVED_WORDS and have & REFERENCE_WORDS <= {"references", "reference", "ref"}:
        return "chunks"
    if (have | above) & REFERENCE_WORDS:
        return _match_reference(words)
    return None if have & {"score", "scores", "id", "ids"} else _match_content(words)


def _match_part(words: tuple[str, ...]) -> str | None:
    """Match the name of a column with the ids, scores or documents of passages, or with the documents of gold."""
    have = set(words)
    if have & (REFERENCE_WORDS | RELEVANT_WORDS) and words[-1] in PART_WORDS["chunks.document"]:
        return "gold"
    if len(words) < 2 or not have & CHUNK_WORDS or have & REFERENCE_WORDS:
        return None
    return next((field for field, last in PART_WORDS.items() if words[-1] in last), None)


def _match_reference(words: tuple[str, ...]) -> str | None:
    if set(words) & (CHUNK_WORDS | {"spans"}):
        return "gold"
    # `e2e_correct` is a verdict on an answer
    return None if words[-1] in QUERY_WORDS | {"correct"} else "reference"


def _match_content(words: tuple[str, ...]) -> str | None:
    """Match by the word that is the head of the name, then by any."""
    have, head = set(words), words[-2:-1] if words[-1] in PLAIN_WORDS else words[-1:]
    fields = (("history", HISTORY_WORDS), ("chunks", CHUNK_WORDS), ("answer", ANSWER_WORDS), ("query", QUERY_WORDS))
    named = [field for field, vocabulary in fields if set(head) & vocabulary]
    named += [field for field, vocabulary in fields[1:] if have & vocabulary]
    return named[0] if named else None
