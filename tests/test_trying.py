"""Trying again: the pauses grow, there is a limit, and what held begins anew."""

from __future__ import annotations

from penstock.trying import Pauses, Then, Tries

FEW = Pauses(shortest_s=1.0, longest_s=4.0, most=5, held_s=60.0)


def tried(tries: Tries, begin_s: int, looks: int = 1000) -> list[int]:
    """When something that stays down is tried, looked at once a second, and when a person is asked."""
    told = [(second, tries.down(float(second))) for second in range(begin_s, begin_s + looks)]
    assert [then for _, then in told].count(Then.ASK) == 1
    assert told[[then for _, then in told].index(Then.ASK) - 1][1] is Then.WAIT
    return [second - begin_s for second, then in told if then is not Then.WAIT]


def test_pauses_grow_up_to_the_longest_and_then_a_person_is_asked_once() -> None:
    tries = Tries(FEW)
    assert tried(tries, 0) == [0, 1, 3, 7, 11, 15]
    assert tries.asks


def test_what_comes_up_and_goes_down_at_once_has_no_more_tries_than_what_stays_down() -> None:
    tries, made = Tries(FEW), 0
    for second in range(0, 1000, 10):
        made += tries.down(float(second)) is Then.TRY
        if not tries.asks:
            tries.well(second + 1.0)
    assert made == FEW.most
    assert tries.asks


def test_what_held_has_all_its_tries_again() -> None:
    tries = Tries(FEW)
    for begin_s in range(0, 1000, 100):
        assert tries.down(float(begin_s)) is Then.TRY
        assert tries.pending
        for second in range(begin_s + 1, begin_s + 62):
            tries.well(float(second))
        assert not tries.pending
    assert not tries.asks


def test_when_a_person_says_so_or_has_helped_it_all_begins_anew() -> None:
    tries = Tries(FEW)
    tried(tries, 0)
    tries.again()
    assert tried(tries, 1000) == [0, 1, 3, 7, 11, 15]
    tries.well(2500.0)
    assert not tries.asks
    assert tried(tries, 3000) == [0, 1, 3, 7, 11, 15]
