"""Intervals: known values, limits, and agreement with a bootstrap."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.diagnostics.intervals import mean_interval, ratio_interval, wilson


def test_wilson_against_a_published_value() -> None:
    """Newcombe (1998), table I: 81 of 263 gives 0.2553 to 0.3662."""
    interval = wilson(81, 263)
    assert interval is not None
    assert interval == pytest.approx((0.2553, 0.3662), abs=5e-5)


@given(st.integers(1, 5_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_stays_a_share(counts: tuple[int, int]) -> None:
    """The observed share lies inside, and 0 and 1 are reached only where they were observed."""
    successes, trials = counts
    interval = wilson(successes, trials)
    assert interval is not None
    assert 0.0 <= interval.low <= successes / trials <= interval.high <= 1.0
    assert (interval.low == 0.0) is (successes == 0)
    assert (interval.high == 1.0) is (successes == trials)


def test_nothing_has_no_interval() -> None:
    """No trials, one request or no calls say nothing about spread."""
    assert wilson(0, 0) is None
    assert ratio_interval(parts=1, wholes=2, part2=1, cross=2, whole2=4, n=1) is None
    assert ratio_interval(parts=0, wholes=0, part2=0, cross=0, whole2=0, n=5) is None
    assert mean_interval(3.0, None, 1) is None


def test_the_ratio_interval_is_what_a_bootstrap_over_requests_comes_to() -> None:
    """Resampling 400 requests of uneven length two thousand times gives the same ends within a tenth of the width."""
    chance = random.Random(7)  # noqa: S311 - a repeatable sample, no secret
    calls = [chance.randint(1, 12) for _ in range(400)]
    saved = [chance.randint(0, x) for x in calls]
    pairs = list(zip(saved, calls, strict=True))
    resampled: list[float] = []
    for _ in range(2_000):
        drawn = chance.choices(pairs, k=len(pairs))
        resampled.append(sum(y for y, _ in drawn) / sum(x for _, x in drawn))
    cuts = statistics.quantiles(resampled, n=40)
    interval = ratio_interval(
        parts=sum(saved),
        wholes=sum(calls),
        part2=sum(y * y for y in saved),
        cross=sum(y * x for y, x in pairs),
        whole2=sum(x * x for x in calls),
        n=len(pairs),
    )
    assert interval is not None
    width = interval.high - interval.low
    assert interval.low == pytest.approx(cuts[0], abs=width / 10)
    assert interval.high == pytest.approx(cuts[-1], abs=width / 10)


def test_the_mean_interval_is_the_normal_one() -> None:
    """Mean 10, sample deviation 2, 16 values: 10 ± 1.96 · 0.5."""
    assert mean_interval(10.0, 2.0, 16) == pytest.approx((9.02002, 10.97998), abs=1e-5)
