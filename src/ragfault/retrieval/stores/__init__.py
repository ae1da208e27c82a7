"""Vector stores: dense search by the client of a database that is run elsewhere, and the loss by approximate search."""

from ragfault.retrieval.stores.loss import StoreLoss, measure_store_loss
from ragfault.retrieval.stores.store_index import STORES, StoreIndex, VectorStore, load_store

__all__ = ["STORES", "StoreIndex", "StoreLoss", "VectorStore", "load_store", "measure_store_loss"]
