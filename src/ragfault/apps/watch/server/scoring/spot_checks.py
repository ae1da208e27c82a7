"""Spot checks: a stronger, paid judge scores a sample of the traces within a daily budget.

A trace is drawn when it is scored and checked afterwards. The queue, the replies and the amount spent are stored, so
that a killed server resumes and pays for nothing twice.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import NamedTuple, cast

from msgspec import Struct

from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import ReceivedTrace, SpotCheck
from ragfault.apps.watch.server.storage.spot_checks import SpotCheckStore
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.online.scorer import SamplingPolicy, ScoredTrace, TraceSampler
from ragfault.judges.llm.judge import LLMJudge
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import compute_scores, list_verdict_kinds
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import BudgetExceeded, JudgeStopped, UsageError
from ragfault.model.records import Usage, Verdicts

# the file that caches replies and the amount spent, unless the options name another
REPLY_CACHE = "replies.sqlite"

JudgeReply = tuple[Verdicts, Usage] | JudgeStopped
"""Verdicts and their usage, or what stopped the judge."""


class FailedCheck(NamedTuple):
    """Failures of the judge on one trace."""

    answers_before: int
    """Answers of the judge before the first failure."""
    tries: int = 0
    retry_at: float = 0.0
    """Earliest time of the next attempt, by the monotonic clock."""

    def add_failure(self) -> FailedCheck:
        """Return the record after one more failure; the pause doubles each time."""
        pause = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0**self.tries)
        return FailedCheck(self.answers_before, self.tries + 1, time.monotonic() + pause)


def load_check_judge(settings: ServerSettings) -> LLMJudge:
    """Load the judge of the spot checks with its cache of replies.

    The judge is opened once, so that a missing key is reported here. Raises what that and `load_judge` raise, and
    UsageError for a judge without a price.
    """
    name = settings.check or ""
    if name.partition(":")[0] != "llm":
        raise UsageError(f'a sample is checked by a judge that asks a model, not by "{name}". Name llm:MODEL.')
    options = {
        "cache": str(settings.data_folder / REPLY_CACHE),
        "verdicts": list_verdict_kinds(select_metrics(settings.metrics)),
        **settings.check_options,
    }
    judge = cast(LLMJudge, load_judge(name, profile=settings.profile, **options))
    judge.begin("checks", fresh=True)
    judge.end()
    return judge


def require_check_store(store: TraceStore) -> SpotCheckStore:
    """Return the spot checks of a store. Raises UsageError where it has none."""
    checks = store.spot_checks
    if checks is None:
        raise UsageError("this store keeps no checks. Leave out --check, or name a folder with --store.")
    return checks


log = logging.getLogger("ragfault.server")

SALT_SETTING, SPENT_SETTING = "checks.salt", "checks.spent"
"""The settings that hold the salt of the draw, and the day whose budget is spent."""
# seconds between polls of the queue
POLL_SECONDS = 0.5
MAX_SKIPPED = 1000
"""Failed traces that are skipped at most to find others: answers for these tell whether trace or judge is at fault."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 300.0
"""Seconds before the first retry of an unreachable judge, and before any."""


class SpotCheckProgress(Struct, frozen=True, kw_only=True):
    """Progress of the spot checks; days are in UTC."""

    judge: str
    """The fingerprint."""
    share: float
    """The probability that an unsuspicious trace is drawn."""
    checked: int
    """Today, as are the next five fields."""
    failed: int
    left: int
    """Drawn but skipped, because the budget was spent."""
    dollars: float | None
    """US$ spent, including what is reserved for calls in progress; None: the price is unknown."""
    tokens: int
    """Tokens spent, sent and received."""
    spent: bool
    """The budget of the day is spent."""
    budget: float | None
    """US$ per day."""
    budget_tokens: int | None
    """Tokens per day."""
    waiting: int
    """Drawn but not checked, on any day."""
    errors: int
    """Failed attempts to reach the judge since the start."""
    fault: str | None
    """The last failure, if the judge has not answered since."""


class SpotChecker(BackgroundThread):
    """Thread that checks drawn traces, several at once.

    `clock` is the time of budgets: the real one, even in the demo. Raises UsageError where the judge has no price or
    the store keeps no checks, and what `load_judge` raises.
    """

    def __init__(self, settings: ServerSettings, store: TraceStore, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._store, self._clock = settings, store, clock
        self.check_store, self._judge = require_check_store(store), load_check_judge(settings)
        self.fingerprint = self._judge.fingerprint
        self._metrics = tuple(metric for metric in select_metrics(settings.metrics) if metric.definition.verdicts)
        self.metrics = frozenset(map(str, self._metrics))
        """Metrics that need verdicts."""
        self._sampler: TraceSampler | None = None
        self._day, self._budget_spent = "", False
        self._in_flight: dict[int, tuple[ReceivedTrace, Future[JudgeReply]]] = {}
        self._failed_checks: dict[int, FailedCheck] = {}
        self._answer_count = self._error_count = self._pause_count = 0
        self._last_error: str | None = None
        self._concurrency = self._judge.settings.concurrency
        self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="ragfault-check")
        super().__init__("ragfault-checks")

    def start(self) -> None:
        """Start with the traces drawn before."""
        salt = self._store.read_setting(SALT_SETTING)
        if salt is None:
            salt = secrets.token_hex(16)
            self._store.save_setting(SALT_SETTING, salt).result()
        self._salt = salt
        sampling = SamplingPolicy(share=self._settings.share)
        self._sampler = TraceSampler(sampling, salt, self.fingerprint, self.check_store.count_draws())
        super().start()

    def draw_sample(self, outcomes: Sequence[ScoredTrace]) -> Future[None]:
        """Draw a sample of scored traces; the Future resolves when it is stored."""
        assert self._sampler is not None
        return self.check_store.add_draws([self._sampler.draw(outcome) for outcome in outcomes])

    def progress(self) -> SpotCheckProgress:
        """Return the progress of today."""
        today = self.check_store.count_checks(self.fingerprint, 86400 * (self._clock() // 86400))
        usage, judge_settings = self._judge.usage, self._judge.settings
        return SpotCheckProgress(
            judge=self.fingerprint,
            share=self._settings.share,
            checked=today.checked,
            failed=today.failed,
            left=today.left,
            dollars=usage.cost,
            tokens=usage.prompt + usage.completion,
            spent=self._budget_spent,
            budget=judge_settings.budget,
            budget_tokens=judge_settings.budget_tokens,
            waiting=today.waiting,
            errors=self._error_count,
            fault=self._last_error,
        )

    def close(self) -> None:
        """Store the replies to requests in progress and stop; other traces wait for the next start."""
        self._stopping.set()
        self._judge.end()
        super().close()
        self._pool.shutdown()
        self._judge.end()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_round()
            except Exception as error:
                # a failed round is logged, and the next one follows
                log.exception("a round of checks failed")
                self._back_off(f"{type(error).__name__}: {error}")
        self._finish_in_flight()

    def _run_round(self) -> None:
        """Submit waiting traces as far as there is room, and store finished checks."""
        self._start_day()
        if not self._budget_spent:
            self._submit_waiting()
        elif self.check_store.list_waiting(self.fingerprint, 1):
            self.check_store.skip_waiting(self.fingerprint, self._clock()).result()
        if not self._in_flight:
            self._stopping.wait(POLL_SECONDS)
            return
        wait([future for _, future in self._in_flight.values()], POLL_SECONDS, FIRST_COMPLETED)
        stopped = self._store_finished()
        if stopped is not None and not self._stopping.is_set():
            self._handle_stop(stopped)

    def _start_day(self) -> None:
        """Open the budget of the day, on a new day or after the judge was unreachable."""
        day = f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}"
        if day != self._day:
            self._finish_in_flight()
            self._judge.begin(f"checks {self._salt[:12]} {day}", fresh=False)
            self._day, self._budget_spent = (day, self._store.read_setting(SPENT_SETTING) == self._budget_key(day))

    def _budget_key(self, day: str) -> list[object]:
        """Return the stored marker of a spent budget; with another budget, checking resumes."""
        return [day, self._judge.settings.budget, self._judge.settings.budget_tokens]

    def _submit_waiting(self) -> None:
        """Submit the oldest waiting traces as far as there is room."""
        now = time.monotonic()
        behind = min(len(self._failed_checks), MAX_SKIPPED)
        for queued in self.check_store.list_waiting(self.fingerprint, 2 * self._concurrency + behind):
            if len(self._in_flight) >= self._concurrency:
                return
            lost = self._failed_checks.get(queued.number)
            if queued.number not in self._in_flight and (lost is None or now >= lost.retry_at):
                self._in_flight[queued.number] = queued, self._pool.submit(self._judge_trace, queued)

    def _judge_trace(self, queued: ReceivedTrace) -> JudgeReply:
        """Return verdicts and usage for a trace, or what stopped the judge; runs on the pool."""
        if self._stopping.is_set():
            return JudgeStopped("the server ends")
        try:
            return self._judge.observe_with_usage(queued.trace)
        except JudgeStopped as error:
            return error
        except Exception as error:
            # a trace that cannot be judged, not a lost thread
            log.exception("a check failed")
            reason = f"{type(error).__name__}: {error}"
            return Verdicts(trace=queued.trace.id, judge=self.fingerprint, failures={"*": reason}), Usage()

    def _finish_in_flight(self) -> JudgeStopped | None:
        """Wait for all requests in progress and store them."""
        wait([future for _, future in self._in_flight.values()])
        return self._store_finished()

    def _store_finished(self) -> JudgeStopped | None:
        """Store finished checks; return what stopped the judge, if anything."""
        done = [number for number, (_, future) in self._in_flight.items() if future.done()]
        checks, numbers, stopped = [], [], None
        for number in done:
            queued, future = self._in_flight.pop(number)
            reply = future.result()
            if isinstance(reply, JudgeStopped):
                stopped = stopped or reply
            elif (check := self._build_check(queued, *reply)) is not None:
                checks.append(check)
                numbers.append(number)
        if checks:
            self.check_store.add_checks(checks, numbers).result()
        return stopped

    def _build_check(self, queued: ReceivedTrace, verdicts: Verdicts, usage: Usage) -> SpotCheck | None:
        """Build the stored check; None where the trace is retried.

        A trace fails for good when the judge fails on it again after answering for others; otherwise the judge is at
        fault and the trace waits.
        """
        scores = tuple(compute_scores(self._metrics, queued.trace, verdicts))
        lost = bool(verdicts.failures) and all(score.value is None for score in scores)
        if lost:
            before = self._failed_checks.get(queued.number, FailedCheck(self._answer_count))
            if self._answer_count <= before.answers_before:
                self._failed_checks[queued.number] = before.add_failure()
                self._record_error(next(iter(verdicts.failures.values())))
                return None
        else:
            self._answer_count += 1
            self._pause_count, self._last_error = 0, None
        self._failed_checks.pop(queued.number, None)
        return SpotCheck(
            trace=queued.trace.id,
            judge=self.fingerprint,
            time=self._clock(),
            state="failed" if lost else "checked",
            cost=usage.cost,
            verdicts=verdicts,
            scores=scores,
        )

    def _handle_stop(self, stopped: JudgeStopped) -> None:
        """End the day where the budget is spent, otherwise back off; waiting traces are kept."""
        also = self._finish_in_flight()
        self._judge.end()
        if isinstance(stopped, BudgetExceeded) or isinstance(also, BudgetExceeded):
            self._budget_spent = True
            self._store.save_setting(SPENT_SETTING, self._budget_key(self._day)).result()
        else:
            self._back_off(str(stopped))

    def _back_off(self, error: str) -> None:
        """Pause, twice as long each time, and open the budget again."""
        self._record_error(error)
        self._day = ""
        self._stopping.wait(min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**self._pause_count))
        self._pause_count += 1

    def _record_error(self, error: str) -> None:
        self._error_count += 1
        self._last_error = error
