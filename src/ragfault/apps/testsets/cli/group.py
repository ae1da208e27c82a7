"""Commands of the group `testset`."""

from __future__ import annotations

import click

from ragfault.apps.testsets.cli.audit import audit, premises
from ragfault.apps.testsets.cli.describe import describe
from ragfault.apps.testsets.cli.make import convert, make
from ragfault.apps.testsets.cli.nuggets import key, nuggets
from ragfault.apps.testsets.cli.pool import pool
from ragfault.apps.testsets.cli.refresh import refresh
from ragfault.apps.testsets.cli.review import adjudicate, review


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
