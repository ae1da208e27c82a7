"""A model whose faults are programmed, behind an OpenAI-compatible endpoint: what it does wrong is known.

The system message of a request names the program; the user message has passages, numbered or not, and a question about
the opening time of a place. Which words it chooses, and where noise replaces the program, depends on the seed, the
request and the number of the call alone.

    with serve_model({}, ProgrammedServer, noise=0.2) as server: ...
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from endpoint import Server, get_text

PLACES = ("museum", "harbour office", "swimming hall", "library", "market", "theatre", "ferry counter", "bakery")
QUESTION = re.compile(r"When does the (?P<place>[\w ]+ \d+) open\?")
SENTENCE = re.compile(r"The (?P<place>[\w ]+ \d+) opens at (?P<time>\d{1,2}:\d\d)")
PROGRAM = re.compile(r"\[program: ([a-z ]+)\]")
REFUSAL = "I don't know. The passages do not say when it opens."
WORDINGS = (
    "It opens at {time}.",
    "The {place} opens at {time}.",
    "You can go in from {time}.",
    "Opening time: {time}.",
)
Facts = list[tuple[str, str]]
"""Place and time of each passage."""


def state(place: str, time: str, draw: random.Random) -> str:
    """Return a sentence with a time, in random words."""
    return draw.choice(WORDINGS).format(place=place, time=time)


def invent(place: str, draw: random.Random) -> str:
    """Return a sentence with a time that no passage has."""
    return state(place, f"{draw.randint(3, 5)}:{draw.randint(10, 59)}", draw)


def read(place: str, facts: Facts) -> str | None:
    """Return the time that the first passage about a place has."""
    return next((time for name, time in facts if name == place), None)


def answer_faithfully(place: str, facts: Facts, draw: random.Random) -> str:
    time = read(place, facts)
    return REFUSAL if time is None else state(place, time, draw)


def invent_if_absent(place: str, facts: Facts, draw: random.Random) -> str:
    time = read(place, facts)
    return invent(place, draw) if time is None else state(place, time, draw)


def lose_third(place: str, facts: Facts, draw: random.Random) -> str:
    return answer_faithfully(place, [fact for at, fact in enumerate(facts) if at != 2], draw)


def confuse_passages(place: str, facts: Facts, draw: random.Random) -> str:
    others = [time for name, time in facts if name != place]
    return state(place, others[0], draw) if others else invent_if_absent(place, facts, draw)


def take_nearest(place: str, facts: Facts, draw: random.Random) -> str:
    return state(place, facts[0][1], draw) if facts else REFUSAL


PROGRAMS: Mapping[str, Callable[[str, Facts, random.Random], str]] = {
    "faithful": answer_faithfully,
    "invents if absent": invent_if_absent,
    "invents": lambda place, _, draw: invent(place, draw),
    "refuses": lambda *_: REFUSAL,
    "loses the third": lose_third,
    "confuses passages": confuse_passages,
    "takes the nearest": take_nearest,
}
"""What a model does with the question and the passages."""


def answer_at_random(place: str, facts: Facts, draw: random.Random) -> str:
    """Answer whatever the program is: faithfully, with an invention, with a refusal, or from some passage."""
    behaviour = draw.choice(("faithful", "invents", "refuses", "some passage"))
    if behaviour == "some passage":
        return state(place, draw.choice(facts)[1], draw) if facts else REFUSAL
    return PROGRAMS[behaviour](place, facts, draw)


def answer(messages: Sequence[Mapping[str, Any]], draw: random.Random, noise: float) -> str:
    """Return the answer of the programmed model to a request."""
    text = "\n".join(map(get_text, messages))
    question, program = QUESTION.search(text), PROGRAM.search(text)
    assert question is not None
    assert program is not None
    facts = [(match["place"], match["time"]) for match in SENTENCE.finditer(text)]
    behave = answer_at_random if draw.random() < noise else PROGRAMS[program[1]]
    return behave(question["place"], facts, draw)


class ProgrammedServer(Server):
    """Endpoint of the programmed model."""

    def __init__(self, faults: Mapping[str, float] | None = None, *, noise: float = 0.0, **options: Any) -> None:
        super().__init__(faults, **options)
        self.noise, self.asked = noise, 0

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        self.asked += 1
        return answer(messages, random.Random(f"{self.seed} {self.asked} {messages}"), self.noise)
