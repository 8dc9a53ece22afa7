"""Made-up requests for the benchmark of the slot store: many forms, long-tailed names, numbers and polite words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Final

__all__ = ["made_up_requests"]

_FORMS: Final = (
    "What is the population of {city}?",
    "How many {thing} were sold in {city} in {year}?",
    "List the {thing} of the {quality} {place} near {city}",
    "Which {place} in {city} has the most {thing}?",
    "Compare the {measure} of {city} and {city2} between {year} and {year2}",
    "Find the {measure} of order {number}",
    "Who approved invoice {number} of {person}?",
    "Show all orders of {person} since {month} {year}",
    "What did {person} write about the {quality} {thing}?",
    "Summarise the {measure} report for {month} {year}",
    "Is there a {quality} {place} in {city} that opens before {hour}?",
    "Book a {place} for {count} people in {city} on {day} {month}",
    "Give me the {measure} per {place} and sort it by {thing}",
    "Why did the {measure} of the {thing} in {city} fall after {month} {year}?",
    "How long does it take from {city} to {city2} by train on {day}?",
    "What are the names of {place} with at least {count} {thing}?",
    "For each {place}, show the average {measure} and the number of {thing}",
    "Count the {thing} whose {measure} is above {number}",
    "Which of {person} and {person2} has more {thing} in {year}?",
    "Check the status of ticket {number} and tell {person}",
    "Translate the note of {person} on {thing} into plain words",
    "What is the cheapest {quality} {thing} in stock in {city}?",
    "Find flights from {city} to {city2} under {number} in {month}",
    "How many employees of {place} {number} live in {city}?",
    "When was the {quality} {place} of {city} built, and by whom?",
    "Draft a reply to {person} about the missing {thing}",
    "What is the weather in {city} on {day}, and do I need an umbrella?",
    "Which {thing} have not been {deed} since {year}?",
    "Show the ids of all {thing} {deed} by {person} in {month}",
    "What share of {thing} was {deed} in {city}?",
    "Return the {count} most {quality} {thing} with their {measure}",
    "Are the {thing} of {place} {number} {deed} yet?",
    "Explain the difference in {measure} between {thing} and {thing2}",
    "Which {place} had no {thing} {deed} in {month} {year}?",
    "Tell me how to reach {person} at the {quality} {place}",
    "Reconcile the {measure} of {thing} with ledger {number}",
)
_BEFORE: Final = ("", "", "", "", "Please: ", "Hi, ", "Quick question. ", "I need this today: ", "Using the database, ")
_AFTER: Final = ("", "", "", "", " Thanks!", " Answer in one sentence.", " Give your source.", " Round to two digits.")
_WORDS: Final[dict[str, str]] = {
    "thing": "tickets invoices books parcels samples sensors bicycles contracts passengers complaints licences rooms "
    "members vehicles batteries paintings recipes articles meters trees lessons patients songs films tables pumps "
    "filters cables lamps doors shoes coats chairs engines valves ladders maps stamps coins seeds horses boats",
    "place": "hotel station museum warehouse school library shop harbour hospital airport farm factory theatre "
    "restaurant office branch depot clinic garage gallery stadium laboratory",
    "quality": "oldest newest largest smallest cheapest busiest quiet modern historic damaged red blue green wooden "
    "electric foreign local public private temporary",
    "measure": "revenue turnover temperature price weight delay age budget distance capacity margin consumption "
    "salary duration pressure score rainfall height debt yield",
    "deed": "delivered repaired returned cancelled inspected renewed paid archived counted labelled",
    "month": "January February March April May June July August September October November December",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "first": "Ada Bo Cem Dora Eli Fay Gus Hana Ida Jon Kim Lea Max Nia Otto Pia Rex Sue Tom Uma Vic Wim Yan Zoe",
    "head": "ven ost bra kel mor tal sun gri hav lin dor fal rei wes nor hal bur cas mil pen ros sta wen yar",
    "middle": "a e i o u an en in on ar er or al el",
    "tail": "holm by ford ville burg stad mouth ton wick dal ness field gate bridge haven ham",
}


def made_up_requests(count: int, *, seed: int) -> Iterator[str]:
    """Yield so many requests; the same seed gives the same ones.

    Args:
        count: How many.
        seed: Where the dice begin.
    """
    dice = random.Random(seed)  # noqa: S311 - made-up data, no secret
    words = {name: listed.split() for name, listed in _WORDS.items()}
    parts = product(words["head"], words["middle"], words["tail"])
    cities = ["".join(part).title() for part in parts]
    random.Random(0).shuffle(cities)  # noqa: S311 - the same common cities whatever the seed

    def long_tailed(values: list[str]) -> str:
        # A few values are asked for all the time, most hardly ever.
        return values[int(len(values) * dice.random() ** 3)]

    def person() -> str:
        return f"{dice.choice(words['first'])} {long_tailed(cities)}son"

    for _ in range(count):
        fields = {name: long_tailed(values) for name, values in words.items()}
        fields |= {"thing2": dice.choice(words["thing"]), "city": long_tailed(cities), "city2": long_tailed(cities)}
        fields |= {"person": person(), "person2": person(), "count": str(dice.randint(2, 40))}
        fields |= {"year": str(dice.randint(1990, 2026)), "year2": str(dice.randint(1990, 2026))}
        fields |= {"number": str(dice.randint(1, 99_999)), "hour": f"{dice.randint(6, 22)}:30"}
        form = _FORMS[int(len(_FORMS) * dice.random() ** 1.5)]
        yield f"{dice.choice(_BEFORE)}{form.format(**fields)}{dice.choice(_AFTER)}"
