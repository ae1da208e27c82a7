"""Names of settings, and the stages of the pipeline that they set."""

from __future__ import annotations

import re

STAGE_WORDS: tuple[tuple[str, str], ...] = (
    (r"rerank|cross_?encoder", "reranker"),
    (r"max_(new_|output_|completion_)?tokens|max_length|num_predict", "max tokens"),
    (r"temperature|top_p|seed|penalty|sampling|decod|(llm|generat|model).*top_?k$", "decoding"),
    (r"rewrit|hyde|expansion|query_transform|multi_query", "query rewriter"),
    (r"chunk|overlap|split", "chunker"),
    (r"embed|(retriev|search).*model", "embedder"),
    (r"threshold|min_score|cutoff", "score threshold"),
    (r"top_?k|top_?n|n_results|num_results|(retriev|search).*(\bk|_k|limit|depth|size)$", "top-k"),
    (r"filter", "filter"),
    (r"refus|fallback|no_answer|abstain", "refusal wording"),
    (r"schema|response_format|output_format|json_mode|citation", "output schema"),
    (r"prompt|template|system_message|instruction", "prompt"),
    (r"index|vector_?store|collection|hnsw|ef_search|nprobe|metric|retriev|search", "index"),
    (r"document|corpus|source|ingest|data_dir|loader|parser", "ingestion"),
    (r"model|llm|provider|deployment|engine", "model"),
    (r"cache", "answer cache"),
    (r"dedup", "deduplication"),
)
"""Words of a setting's path → the stage that it belongs to; the first that matches decides."""


def find_stage(key: str) -> str | None:
    """Return the stage that a setting belongs to by the words of its path; None where none is known.

    >>> [find_stage(key) for key in ("retriever.top_k", "llm.top_k", "embedding.model", "logging.level")]
    ['top-k', 'decoding', 'embedder', None]
    """
    words = to_snake_case(key)
    return next((stage for pattern, stage in STAGE_WORDS if re.search(pattern, words)), None)


def to_snake_case(key: str) -> str:
    """Return a path in lower case, with an underscore for each run of other signs than letters, digits and dots."""
    return re.sub(r"[^a-z0-9.]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower())
