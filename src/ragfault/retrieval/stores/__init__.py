"""Vector stores: dense search by the client of a database that is run elsewhere, and the loss by approximate search."""

from ragfault.retrieval.stores.loss import StoreLoss, measure_store_loss
from ragfault.retrieval.stores.store_index import StoreIndex, load_store

__all__ = ["StoreIndex", "StoreLoss", "load_store", "measure_store_loss"]
