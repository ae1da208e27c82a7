"""Commands of the group `testset`."""

from __future__ import annotations

import click

from ragfault.cli.testset.audit import audit, premises
from ragfault.cli.testset.describe import describe
from ragfault.cli.testset.make import convert, make
from ragfault.cli.testset.nuggets import key, nuggets
from ragfault.cli.testset.pool import pool
from ragfault.cli.testset.refresh import refresh
from ragfault.cli.testset.review import adjudicate, review


@click.group(
    epilog="""\b
Examples:
  ragfault testset make handbook/documents -o set.jsonl -n 100
  ragfault testset refresh handbook/documents set.jsonl"""
)
def testset() -> None:
    """Make evaluation sets from a corpus without a key, describe them, and keep them valid as the corpus changes."""


for command in (make, describe, pool, nuggets, key, review, adjudicate, refresh, audit, premises, convert):
    testset.add_command(command)
