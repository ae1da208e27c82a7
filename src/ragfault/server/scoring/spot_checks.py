"""Spot checks: a stronger, paid judge scores a sample of the traces within a daily budget.

The queue, the replies and the amount spent are stored, so that a killed server resumes and pays for nothing twice.

A trace is drawn when it is scored, and asked about afterwards. What waits is read from the store, replies are kept in a
file beside it, and so is what was spent: a server that was killed goes on where it was, and pays for nothing twice.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import NamedTuple, cast

from msgspec import Struct

from ragfault.errors import BudgetExceeded, JudgeStopped, UsageError
from ragfault.evaluation.online import ScoredTrace
from ragfault.evaluation.online.sampling import SamplingPolicy, TraceSampler
from ragfault.judges import load_judge
from ragfault.judges.llm.judge import LLMJudge
from ragfault.metrics import compute_score, select_metrics
from ragfault.records import Usage, Verdicts
from ragfault.server.settings import ServerSettings
from ragfault.server.storage import ReceivedTrace, SpotCheck, SpotCheckStore, TraceStore

REPLY_CACHE = "replies.sqlite"
"""The file in the folder of the store that keeps replies and what was spent, where no other is named."""

JudgeReply = tuple[Verdicts, Usage] | JudgeStopped
"""What came of asking: verdicts and what they came to, or what stopped the judge."""


class FailedCheck(NamedTuple):
    """A trace that the judge failed on."""

    answers_before: int
    """How often the judge had answered before."""
    tries: int = 0
    retry_at: float = 0.0
    """It is not asked about before this, by the monotonic clock."""

    def add_failure(self, first_pause: float, max_pause: float) -> FailedCheck:
        """The same after one more failure: asked about again after `first` seconds, and twice as many each time."""
        pause = min(max_pause, first_pause * 2.0**self.tries)
        return FailedCheck(self.answers_before, self.tries + 1, time.monotonic() + pause)


def load_check_judge(settings: ServerSettings) -> LLMJudge:
    """The judge that checks, with its file of replies beside the store.

    It is opened once, so that a key that lacks is told here. Raises what that and `load_judge` raise, and UsageError
    for a judge that costs nothing.
    """
    name = settings.check or ""
    if name.partition(":")[0] != "llm":
        raise UsageError(
            f'a sample is checked by a judge that asks a model, not by "{name}". Name llm:MODEL.'
        )
    options = {"cache": str(settings.data_folder / REPLY_CACHE), **settings.check_options}
    judge = cast(LLMJudge, load_judge(name, profile=settings.profile, **options))
    judge.begin("checks", fresh=True)
    judge.end()
    return judge


def require_check_store(store: TraceStore) -> SpotCheckStore:
    """Where a store keeps checks. Raises UsageError where it keeps none."""
    found = store.spot_checks
    if found is None:
        raise UsageError("this store keeps no checks. Leave out --check, or name a folder with --store.")
    return found


log = logging.getLogger("ragfault.server")

SALT_SETTING, SPENT_SETTING = "checks.salt", "checks.spent"
"""The settings that hold the salt of the draw, and the day whose money is spent."""
POLL_SECONDS = 0.5
"""Seconds between looks at what waits."""
MAX_SKIPPED = 1000
"""Traces that the judge failed on behind which others are looked for, at most: their answers tell whose fault it is."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 300.0
"""Seconds until a judge that could not be asked is asked again: the first time, and at the most."""


class SpotCheckProgress(Struct, frozen=True, kw_only=True):
    """How checking goes; days are those of UTC."""

    judge: str
    """The fingerprint."""
    share: float
    """The chance of a trace that nothing speaks for."""
    checked: int
    """Today, as are the next five."""
    failed: int
    left: int
    """Drawn and left out, as the money was spent."""
    dollars: float | None
    """What was spent, what is set aside for calls under way among it; None: no price is known."""
    tokens: int
    """The same in tokens, sent and received."""
    spent: bool
    """Whether the rest of the day is left out."""
    budget: float | None
    """US$ a day."""
    budget_tokens: int | None
    """Tokens a day."""
    waiting: int
    """Drawn and not asked about yet, since whenever."""
    errors: int
    """How often the judge could not be asked, since the server began."""
    fault: str | None
    """Why it could not the last time, where it has not answered since."""


class SpotChecker:
    """A thread that asks about what was drawn, several traces at once.

    `clock` tells the time by which money is spent: the real one, also where the demo's runs faster. Raises UsageError
    where the judge is none that is paid for or the store keeps no checks, and what `load_judge` raises.
    """

    def __init__(
        self, settings: ServerSettings, store: TraceStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._store, self._clock = settings, store, clock
        self.check_store, self._judge = require_check_store(store), load_check_judge(settings)
        self.fingerprint = self._judge.fingerprint
        self._metrics = tuple(one for one in select_metrics(settings.metrics) if one.definition.verdicts)
        self.metrics = frozenset(map(str, self._metrics))
        """Those that the judge has a part in."""
        self._sampler: TraceSampler | None = None
        self._day, self._budget_spent = "", False
        self._in_flight: dict[int, tuple[ReceivedTrace, Future[JudgeReply]]] = {}
        self._failed_checks: dict[int, FailedCheck] = {}
        self._answer_count = self._error_count = self._pause_count = 0
        self._last_error: str | None = None
        self._stopping = threading.Event()
        self._concurrency = self._judge.settings.concurrency
        self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="ragfault-check")
        self._thread = threading.Thread(target=self._run, name="ragfault-checks", daemon=True)

    def start(self) -> None:
        """Begin with what was drawn before and waits."""
        salt = self._store.read_setting(SALT_SETTING)
        if salt is None:
            salt = secrets.token_hex(16)
            self._store.save_setting(SALT_SETTING, salt).result()
        self._salt = salt
        sampling = SamplingPolicy(share=self._settings.share)
        self._sampler = TraceSampler(sampling, salt, self.fingerprint, self.check_store.count_draws())
        self._thread.start()

    def draw_sample(self, outcomes: Sequence[ScoredTrace]) -> Future[None]:
        """Draw from traces that were scored; done when it is on the disk."""
        assert self._sampler is not None
        return self.check_store.add_draws([self._sampler.draw(each) for each in outcomes])

    def progress(self) -> SpotCheckProgress:
        """How checking goes today."""
        today = self.check_store.count_checks(self.fingerprint, 86400 * (self._clock() // 86400))
        usage, asked = self._judge.usage, self._judge.settings
        return SpotCheckProgress(
            judge=self.fingerprint,
            share=self._settings.share,
            checked=today.checked,
            failed=today.failed,
            left=today.left,
            dollars=usage.cost,
            tokens=usage.prompt + usage.completion,
            spent=self._budget_spent,
            budget=asked.budget,
            budget_tokens=asked.budget_tokens,
            waiting=today.waiting,
            errors=self._error_count,
            fault=self._last_error,
        )

    def close(self) -> None:
        """Wait for the replies to what was sent, store what came of them, and end; the rest waits for the next time."""
        self._stopping.set()
        self._judge.end()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()
        self._judge.end()

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_round()
            except Exception as error:  # a round that fails is told, and the next one comes
                log.exception("a round of checks failed")
                self._back_off(f"{type(error).__name__}: {error}")
        self._finish_in_flight()

    def _run_round(self) -> None:
        """Ask about what waits, as far as there is room, and store what came back meanwhile."""
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
        """Open the purse of the day, where another day has begun, or the judge was out of reach."""
        day = f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}"
        if day != self._day:
            self._finish_in_flight()
            self._judge.begin(f"checks {self._salt[:12]} {day}", fresh=False)
            self._day, self._budget_spent = (
                day,
                self._store.read_setting(SPENT_SETTING) == self._budget_key(day),
            )

    def _budget_key(self, day: str) -> list[object]:
        """What is remembered of a day whose money is spent; with another budget it goes on."""
        return [day, self._judge.settings.budget, self._judge.settings.budget_tokens]

    def _submit_waiting(self) -> None:
        """Fill what room there is with traces that wait, the oldest first."""
        now = time.monotonic()
        behind = min(len(self._failed_checks), MAX_SKIPPED)
        for kept in self.check_store.list_waiting(self.fingerprint, 2 * self._concurrency + behind):
            if len(self._in_flight) >= self._concurrency:
                return
            lost = self._failed_checks.get(kept.number)
            if kept.number not in self._in_flight and (lost is None or now >= lost.retry_at):
                self._in_flight[kept.number] = kept, self._pool.submit(self._judge_trace, kept)

    def _judge_trace(self, queued: ReceivedTrace) -> JudgeReply:
        """The verdicts on a trace and what they came to, or what stopped the judge; on a thread of the pool."""
        if self._stopping.is_set():
            return JudgeStopped("the server ends")
        try:
            return self._judge.observe_with_usage(queued.trace)
        except JudgeStopped as error:
            return error
        except Exception as error:  # a trace that cannot be judged, not a lost thread
            log.exception("a check failed")
            reason = f"{type(error).__name__}: {error}"
            return Verdicts(trace=queued.trace.id, judge=self.fingerprint, failures={"*": reason}), Usage()

    def _finish_in_flight(self) -> JudgeStopped | None:
        """Wait for all that is under way, and store it."""
        wait([future for _, future in self._in_flight.values()])
        return self._store_finished()

    def _store_finished(self) -> JudgeStopped | None:
        """Store what came back; what stopped the judge, if anything did."""
        done = [number for number, (_, future) in self._in_flight.items() if future.done()]
        made, numbers, stopped = [], [], None
        for number in done:
            kept, future = self._in_flight.pop(number)
            found = future.result()
            if isinstance(found, JudgeStopped):
                stopped = stopped or found
            elif (check := self._build_check(kept, *found)) is not None:
                made.append(check)
                numbers.append(number)
        if made:
            self.check_store.add_checks(made, numbers).result()
        return stopped

    def _build_check(self, queued: ReceivedTrace, verdicts: Verdicts, usage: Usage) -> SpotCheck | None:
        """What is stored of an answer; None where the trace is asked about once more.

        A trace fails for good when the judge fails on it again and answered for others meanwhile; else it is the judge
        that is out of order, and the trace waits.
        """
        scores = tuple(compute_score(metric, queued.trace, verdicts) for metric in self._metrics)
        lost = bool(verdicts.failures) and all(one.value is None for one in scores)
        if lost:
            before = self._failed_checks.get(queued.number, FailedCheck(self._answer_count))
            if self._answer_count <= before.answers_before:
                self._failed_checks[queued.number] = before.add_failure(
                    FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS
                )
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

    # --- when it cannot go on ------------------------------------------------------------------------

    def _handle_stop(self, stopped: JudgeStopped) -> None:
        """End the day where its money is spent, else rest a while; nothing that waits is lost."""
        also = self._finish_in_flight()
        self._judge.end()
        if isinstance(stopped, BudgetExceeded) or isinstance(also, BudgetExceeded):
            self._budget_spent = True
            self._store.save_setting(SPENT_SETTING, self._budget_key(self._day)).result()
        else:
            self._back_off(str(stopped))

    def _back_off(self, error: str) -> None:
        """Wait, twice as long each time, and open the purse anew."""
        self._record_error(error)
        self._day = ""
        self._stopping.wait(min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**self._pause_count))
        self._pause_count += 1

    def _record_error(self, error: str) -> None:
        self._error_count += 1
        self._last_error = error
