"""Weekdays, months, opposites and units: facts in plain and in chat wording."""

import random

Question = tuple[str, str]  # what is asked, what is answered

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()

OPPOSITES = [
    tuple(pair.split("/"))
    for pair in (
        "hot/cold big/small fast/slow up/down left/right day/night open/closed full/empty "
        "happy/sad light/dark hard/soft wet/dry old/new early/late high/low long/short "
        "loud/quiet rich/poor strong/weak thick/thin near/far first/last true/false good/bad "
        "clean/dirty sweet/sour wide/narrow deep/shallow rough/smooth "
        "brave/timid cheap/expensive begin/finish push/pull win/lose buy/sell give/take "
        "come/go in/out above/below before/after always/never easy/difficult black/white "
        "north/south east/west summer/winter love/hate awake/asleep alive/dead kind/cruel "
        "front/back inside/outside more/less many/few same/different safe/dangerous "
        "sharp/blunt tight/loose ugly/beautiful remember/forget "
        "laugh/cry arrive/depart friend/enemy question/answer sunrise/sunset land/sea"
    ).split()
]

# One of the first is so many of the second.
UNITS = [
    ("meter", "centimeter", 100),
    ("kilometer", "meter", 1000),
    ("centimeter", "millimeter", 10),
    ("kilogram", "gram", 1000),
    ("liter", "milliliter", 1000),
    ("hour", "minute", 60),
    ("minute", "second", 60),
    ("day", "hour", 24),
    ("week", "day", 7),
    ("year", "month", 12),
    ("dollar", "cent", 100),
    ("foot", "inch", 12),
    ("yard", "foot", 3),
]
PLURALS = {"foot": "feet", "inch": "inches"}
MOST_UNITS = 12


def _amount(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {_plural(unit)}"


def _plural(unit: str) -> str:
    return PLURALS.get(unit, unit + "s")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _order(rng: random.Random) -> tuple[str, str, str]:
    """A fact of weekday or month order: its subject, its answer, the chat's question word."""
    names, unit = rng.choice(((DAYS, "day"), (MONTHS, "month")))
    at = rng.randrange(len(names))
    word, step = rng.choice((("after", 1), ("after", 1), ("before", -1), ("before", -1)))
    far = rng.random() < 0.15
    subject = f"two {unit}s {word} {names[at]}" if far else f"the {unit} {word} {names[at]}"
    answer = names[(at + (2 * step if far else step)) % len(names)]
    return subject, answer, f"{unit} comes {'two ' + unit + 's ' if far else ''}{word} {names[at]}"


def _conversion(rng: random.Random) -> tuple[int, str, int, str]:
    large, small, factor = rng.choice(UNITS)
    count = rng.randint(1, MOST_UNITS)
    # "7 days is" could go on as "1 week" or "168 hours": small counts go one way only.
    if count * factor > MOST_UNITS and rng.random() < 0.3:
        return count * factor, small, count, large
    return count, large, count * factor, small


def plain(rng: random.Random) -> Question:
    """The start of a line and its end, newline included."""
    kind = rng.random()
    if kind < 0.4:
        subject, answer, _ = _order(rng)
    elif kind < 0.7:
        word, answer = _opposite(rng)
        subject = f"the opposite of {word}"
    else:
        count, unit, result, smaller = _conversion(rng)
        subject, answer = _amount(count, unit), _amount(result, smaller)
    if subject[0].isalpha() and rng.random() < 0.3:
        return f"{subject[0].upper()}{subject[1:]} is", f" {answer}.\n"
    return f"{subject} is", f" {answer}\n"


def _opposite(rng: random.Random) -> tuple[str, str]:
    one, other = rng.choice(OPPOSITES)
    return (one, other) if rng.random() < 0.5 else (other, one)


def chat(rng: random.Random) -> Question:
    """A question to the assistant and its answer."""
    kind = rng.random()
    if kind < 0.4:
        subject, answer, which = _order(rng)
        asks = [f"What is {subject}?", f"Tell me {subject}.", f"Which {which}?"]
        return rng.choice(asks), _sentence(f"{subject} is {answer}")
    if kind < 0.7:
        word, answer = _opposite(rng)
        asks = [
            f"What is the opposite of {word}?",
            f"What's the opposite of {word}?",
            f"Tell me the opposite of {word}.",
            f"Which word is the opposite of {word}?",
        ]
        return rng.choice(asks), f"The opposite of {word} is {answer}."
    count, unit, result, other = _conversion(rng)
    verb = "is" if count == 1 else "are"
    asks = [
        f"How many {_plural(other)} {verb} {_amount(count, unit)}?",
        f"How many {_plural(other)} are in {_amount(count, unit)}?",
        f"What is {_amount(count, unit)} in {_plural(other)}?",
        f"Convert {_amount(count, unit)} to {_plural(other)}.",
    ]
    return rng.choice(asks), f"{_amount(count, unit)} is {_amount(result, other)}."


SMALL_TALK = [
    (("Hello!", "Hi!", "Hello.", "Hi there!", "Good morning!"), "Hello! How can I help you?"),
    (("Thank you!", "Thanks!", "Thank you.", "Thanks."), "You are welcome!"),
    (("Goodbye!", "Bye!", "Bye.", "See you later!"), "Goodbye! Come back soon."),
    (
        ("Who are you?", "What are you?", "What is your name?"),
        "I am the demo model of Heddle, a very small language model.",
    ),
    (
        ("What can you do?", "How can you help me?", "Help!", "What do you know?"),
        "I can add and subtract, sort numbers, name days, months and opposites, "
        "change units and tell short stories.",
    ),
    (
        ("Name the days of the week.", "What are the days of the week?", "List the weekdays."),
        f"The days of the week are {', '.join(DAYS[:-1])} and {DAYS[-1]}.",
    ),
    (
        ("Name the months.", "What are the months of the year?", "List the months."),
        f"The months are {', '.join(MONTHS[:-1])} and {MONTHS[-1]}.",
    ),
]


def small_talk(rng: random.Random) -> Question:
    """Greetings and questions about the assistant."""
    asks, answer = rng.choice(SMALL_TALK)
    return rng.choice(asks), answer
