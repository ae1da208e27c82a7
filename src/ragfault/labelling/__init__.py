"""Labelling: people say of each item of a trace what a judge would, one word at a time."""

from ragfault.labelling.asking import KINDS, Choice, Item, Kind, choices, items, judged, labelled
from ragfault.labelling.between import Dispute, Raters, raters
from ragfault.labelling.picking import DOUBTS, Pick, drawn, read_picks, suggest
from ragfault.labelling.session import Session

__all__ = [
    "DOUBTS",
    "KINDS",
    "Choice",
    "Dispute",
    "Item",
    "Kind",
    "Pick",
    "Raters",
    "Session",
    "choices",
    "drawn",
    "items",
    "judged",
    "labelled",
    "raters",
    "read_picks",
    "suggest",
]
