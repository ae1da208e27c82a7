"""Embedders: texts as vectors, by a model fitted on the corpus, a local model, or an embedding service."""

from __future__ import annotations

from importlib import import_module

from ragfault.model.errors import UnknownName
from ragfault.model.expressions import Scalar
from ragfault.model.protocols import Embedder

EMBEDDERS = {
    "latent": "ragfault.retrieval.embedders.latent:LatentEmbedder",
    "minilm": "ragfault.retrieval.embedders.minilm:MiniLMEmbedder",
    "sentence": "ragfault.retrieval.embedders.model_embedders:SentenceEmbedder",
    "endpoint": "ragfault.retrieval.embedders.model_embedders:EndpointEmbedder",
}
"""Name → where the embedder is made; `sentence:MODEL` and `endpoint:MODEL` name the model behind a colon."""


def load_embedder(name: str = "latent", **options: Scalar) -> Embedder:
    """Return the embedder of a name with its options.

    "latent" is fitted on the corpus that it embeds, "minilm" is the published all-MiniLM-L6-v2,
    "sentence:MODEL" one of sentence-transformers, "endpoint:MODEL" one behind an OpenAI-compatible address.
    Raises UnknownName for any other name, and MissingExtra where a model needs an extra that is not installed.

    >>> load_embedder("latent", dimensions=8).fingerprint
    'latent/1 dimensions=8 seed=0 unfitted'
    >>> load_embedder("latant")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no embedder "latant". Did you mean "latent"?
    """
    kind, colon, model = name.partition(":")
    if kind not in EMBEDDERS:
        raise UnknownName("embedder", name, EMBEDDERS)
    room, _, maker = EMBEDDERS[kind].partition(":")
    embedder: Embedder = getattr(import_module(room), maker)(*([model] if colon else []), **options)
    return embedder
