"""Checking: a judge that is paid for is asked about a sample of the traces, within a budget for each day.

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

from msgspec import Struct

from ragfault.errors import BudgetSpent, Stopped
from ragfault.metrics import choose, score
from ragfault.online import Scored
from ragfault.online.sampling import Sampler, Sampling
from ragfault.records import Usage, Verdicts
from ragfault.server.checking_judge import Asked, Lost, checking, paid
from ragfault.server.settings import Settings
from ragfault.store import Check, Kept, Store

__all__ = ["Checker", "Progress"]

log = logging.getLogger("ragfault.server")

SALT, SPENT = "checks.salt", "checks.spent"
"""The settings that hold the salt of the draw, and the day whose money is spent."""
PAUSE = 0.5
"""Seconds between looks at what waits."""
PASSED = 1000
"""Traces that the judge failed on behind which others are looked for, at most: their answers tell whose fault it is."""
FIRST, LONGEST = 5.0, 300.0
"""Seconds until a judge that could not be asked is asked again: the first time, and at the most."""


class Progress(Struct, frozen=True, kw_only=True):
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


class Checker:
    """A thread that asks about what was drawn, several traces at once.

    `clock` tells the time by which money is spent: the real one, also where the demo's runs faster. Raises UsageError
    where the judge is none that is paid for or the store keeps no checks, and what `load_judge` raises.
    """

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._store, self._now = settings, store, clock
        self.port, self._judge = checking(store), paid(settings)
        self.fingerprint = self._judge.fingerprint
        self._metrics = tuple(one for one in choose(settings.metrics) if one.definition.verdicts)
        self.metrics = frozenset(map(str, self._metrics))
        """Those that the judge has a part in."""
        self._sampler: Sampler | None = None
        self._day, self._spent = "", False
        self._asked: dict[int, tuple[Kept, Future[Asked]]] = {}
        self._lost: dict[int, Lost] = {}
        self._answers = self._errors = self._rests = 0
        self._fault: str | None = None
        self._ending = threading.Event()
        self._size = self._judge.settings.concurrency
        self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="ragfault-check")
        self._thread = threading.Thread(target=self._work, name="ragfault-checks", daemon=True)

    def start(self) -> None:
        """Begin with what was drawn before and waits."""
        salt = self._store.setting(SALT)
        if salt is None:
            salt = secrets.token_hex(16)
            self._store.save_setting(SALT, salt).result()
        self._salt = salt
        sampling = Sampling(share=self._settings.share)
        self._sampler = Sampler(sampling, salt, self.fingerprint, self.port.drawn())
        self._thread.start()

    def draw(self, outcomes: Sequence[Scored]) -> Future[None]:
        """Draw from traces that were scored; done when it is on the disk."""
        assert self._sampler is not None
        return self.port.draw([self._sampler.draw(each) for each in outcomes])

    def progress(self) -> Progress:
        """How checking goes today."""
        today = self.port.checks(self.fingerprint, 86400 * (self._now() // 86400))
        usage, asked = self._judge.usage, self._judge.settings
        return Progress(
            judge=self.fingerprint,
            share=self._settings.share,
            checked=today.checked,
            failed=today.failed,
            left=today.left,
            dollars=usage.cost,
            tokens=usage.prompt + usage.completion,
            spent=self._spent,
            budget=asked.budget,
            budget_tokens=asked.budget_tokens,
            waiting=today.waiting,
            errors=self._errors,
            fault=self._fault,
        )

    def close(self) -> None:
        """Wait for the replies to what was sent, store what came of them, and end; the rest waits for the next time."""
        self._ending.set()
        self._judge.end()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()
        self._judge.end()

    # --- on the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                self._round()
            except Exception as error:  # a round that fails is told, and the next one comes
                log.exception("a round of checks failed")
                self._rest(f"{type(error).__name__}: {error}")
        self._drain()

    def _round(self) -> None:
        """Ask about what waits, as far as there is room, and store what came back meanwhile."""
        self._turn()
        if not self._spent:
            self._ask()
        elif self.port.waiting(self.fingerprint, 1):
            self.port.leave(self.fingerprint, self._now()).result()
        if not self._asked:
            self._ending.wait(PAUSE)
            return
        wait([future for _, future in self._asked.values()], PAUSE, FIRST_COMPLETED)
        stopped = self._settle()
        if stopped is not None and not self._ending.is_set():
            self._stop(stopped)

    def _turn(self) -> None:
        """Open the purse of the day, where another day has begun, or the judge was out of reach."""
        day = f"{datetime.fromtimestamp(self._now(), UTC):%Y-%m-%d}"
        if day != self._day:
            self._drain()
            self._judge.begin(f"checks {self._salt[:12]} {day}", afresh=False)
            self._day, self._spent = day, self._store.setting(SPENT) == self._means(day)

    def _means(self, day: str) -> list[object]:
        """What is remembered of a day whose money is spent; with another budget it goes on."""
        return [day, self._judge.settings.budget, self._judge.settings.budget_tokens]

    def _ask(self) -> None:
        """Fill what room there is with traces that wait, the oldest first."""
        now = time.monotonic()
        behind = min(len(self._lost), PASSED)
        for kept in self.port.waiting(self.fingerprint, 2 * self._size + behind):
            if len(self._asked) >= self._size:
                return
            lost = self._lost.get(kept.number)
            if kept.number not in self._asked and (lost is None or now >= lost.until):
                self._asked[kept.number] = kept, self._pool.submit(self._observe, kept)

    def _observe(self, kept: Kept) -> Asked:
        """The verdicts on a trace and what they came to, or what stopped the judge; on a thread of the pool."""
        if self._ending.is_set():
            return Stopped("the server ends")
        try:
            return self._judge.metered(kept.trace)
        except Stopped as error:
            return error
        except Exception as error:  # a trace that cannot be judged, not a lost thread
            log.exception("a check failed")
            reason = f"{type(error).__name__}: {error}"
            return Verdicts(trace=kept.trace.id, judge=self.fingerprint, failures={"*": reason}), Usage()

    def _drain(self) -> Stopped | None:
        """Wait for all that is under way, and store it."""
        wait([future for _, future in self._asked.values()])
        return self._settle()

    def _settle(self) -> Stopped | None:
        """Store what came back; what stopped the judge, if anything did."""
        done = [number for number, (_, future) in self._asked.items() if future.done()]
        made, numbers, stopped = [], [], None
        for number in done:
            kept, future = self._asked.pop(number)
            found = future.result()
            if isinstance(found, Stopped):
                stopped = stopped or found
            elif (check := self._check(kept, *found)) is not None:
                made.append(check)
                numbers.append(number)
        if made:
            self.port.add(made, numbers).result()
        return stopped

    def _check(self, kept: Kept, seen: Verdicts, usage: Usage) -> Check | None:
        """What is stored of an answer; None where the trace is asked about once more.

        A trace fails for good when the judge fails on it again and answered for others meanwhile; else it is the judge
        that is out of order, and the trace waits.
        """
        scores = tuple(score(metric, kept.trace, seen) for metric in self._metrics)
        lost = bool(seen.failures) and all(one.value is None for one in scores)
        if lost:
            before = self._lost.get(kept.number, Lost(self._answers))
            if self._answers <= before.answers:
                self._lost[kept.number] = before.later(FIRST, LONGEST)
                self._failed(next(iter(seen.failures.values())))
                return None
        else:
            self._answers += 1
            self._rests, self._fault = 0, None
        self._lost.pop(kept.number, None)
        return Check(
            trace=kept.trace.id,
            judge=self.fingerprint,
            time=self._now(),
            state="failed" if lost else "checked",
            cost=usage.cost,
            verdicts=seen,
            scores=scores,
        )

    # --- when it cannot go on ------------------------------------------------------------------------

    def _stop(self, stopped: Stopped) -> None:
        """End the day where its money is spent, else rest a while; nothing that waits is lost."""
        also = self._drain()
        self._judge.end()
        if isinstance(stopped, BudgetSpent) or isinstance(also, BudgetSpent):
            self._spent = True
            self._store.save_setting(SPENT, self._means(self._day)).result()
        else:
            self._rest(str(stopped))

    def _rest(self, fault: str) -> None:
        """Wait, twice as long each time, and open the purse anew."""
        self._failed(fault)
        self._day = ""
        self._ending.wait(min(LONGEST, FIRST * 2**self._rests))
        self._rests += 1

    def _failed(self, fault: str) -> None:
        self._errors += 1
        self._fault = fault
