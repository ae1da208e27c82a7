"""Budget and usage of a judge that is wrapped by another."""

from typing import Any, cast

from ragfault.protocols import Judge, MeteredJudge
from ragfault.records import Usage


class MeteredWrapper:
    """Budget and usage of the judge in `_judge`, for the wrappers of judges that cost money."""

    _judge: Judge

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        cast("MeteredJudge", self._judge).begin(budget_id, fresh=fresh)

    @property
    def fetch_in_batches(self) -> Any:
        """Method of the judge, if it has it."""
        return getattr(self._judge, "fetch_in_batches", None)

    @property
    def usage(self) -> Usage:
        return cast("MeteredJudge", self._judge).usage

    def end(self) -> None:
        cast("MeteredJudge", self._judge).end()
