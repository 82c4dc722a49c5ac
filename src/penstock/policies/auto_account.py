"""The account of late records: how many may be late, how many were, and what one more is worth.

Asked to keep 99 %, a unit may be late with 1 % of its records. What it has not used of that stands in an
account; what it used too much is a debt. From the account follows what a late record is worth to avoid: as
much as the records that would have to be on time for it, times more where there is a debt, times less where
there is plenty left. So the share asked for is aimed at, and neither missed nor exceeded at any price. What
nobody could help is late, but no debt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.forecasts.comparison import EPISODE
from penstock.forecasts.record import Load

REMEMBERED_S = 86400.0
"""How long the account looks back: what was late yesterday is forgiven, what was saved is forgotten."""
COLD_BINS = 10
"""So many bins after the first record, what is late is late for the want of a first instance."""
DEAREST, CHEAPEST = 1.0, -8.0
"""The worth of a late record moves by at most a factor of e to these powers.

A debt cannot be paid back soon: to be some times as careful is careful enough.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """A unit's late records against those it may have."""

    done: float
    """Records finished within the span looked back on."""
    late: float
    balance_s: float
    """Late records that may still come (or came too many, below 0), as seconds of the usual load."""
    span_s: float = 0.0
    """The time looked back on."""
    excused_s: float = 0.0
    """How much of a debt nobody could help, as seconds of the usual load."""

    @property
    def owed_s(self) -> float:
        """What is left, or where it is a debt, what somebody could have helped of it."""
        return self.balance_s if self.balance_s >= 0.0 else min(0.0, self.balance_s + self.excused_s)

    @property
    def saved(self) -> float:
        """The share of records that was on time and need not have been."""
        return self.balance_s / self.span_s if self.span_s > 0 else 0.0

    @property
    def kept(self) -> float | None:
        """The share that was on time; None where nothing was finished."""
        return 1.0 - self.late / self.done if self.done else None


def backlog_s(
    waiting: float, able_per_s: float, load_per_s: float, slack_s: float, lead_s: float, recovery_s: float
) -> float:
    """How long records will go on being late for the backlog there is, whatever is decided now."""
    if waiting <= slack_s * able_per_s:
        return 0.0
    spare_per_s = able_per_s - load_per_s
    # Where what is there does not do it: somewhat later, with what a decision adds.
    over_s = waiting / spare_per_s if spare_per_s * recovery_s >= waiting else lead_s + recovery_s
    # All that waits is late, however fast it is worked off.
    return max(over_s, waiting / max(load_per_s, 1e-9))


def account_of(load: Load, keep: float, committed_s: float = 0.0) -> Account:
    """The account over the last day, from the bins of a load; what is sure to be late is late already."""
    bins = max(1, round(REMEMBERED_S / load.bin_s))
    # Nobody can help what was late before the first instances served, and nobody is to pay for it all day.
    begin = max(COLD_BINS, len(load) - bins)
    done, late = float(load.done[begin:].sum()), float(load.late[begin:].sum())
    span_s = max(0, len(load) - begin) * load.bin_s
    if done <= 0:
        return Account(done, late, 0.0)
    balance_s = ((1.0 - keep) * done - late) * span_s / done - committed_s
    excused_s = 0.0
    if balance_s < 0.0:
        # What is sure to be late cannot be helped by now. What happened once in so long a time may have been
        # chance, as it is for whoever foretells the load: how far the worst episode stands above all others.
        episodes = np.convolve(load.late[begin:], np.ones(EPISODE))
        worst = int(episodes.argmax())
        most = float(episodes[worst])
        episodes[max(0, worst - EPISODE) : worst + EPISODE + 1] = 0.0
        excused_s = committed_s + (most - float(episodes.max())) * span_s / done
    return Account(done, late, balance_s, span_s, excused_s)


def worth_of_late(
    account: Account, keep: float, price_per_record: float, lead_s: float, waits_s: float = 0.0
) -> float:
    """What avoiding one late record is worth, in money.

    A unit that is short of capacity with probability p is late with about a share p. Adding capacity pays
    where p · worth exceeds the price of a record's work, so worth = price / (1 - keep) makes p = 1 - keep.
    Lateness comes in pieces as long as it takes to do something about it: the lead time is the measure of
    the account. A backlog of longer than that (`waits_s`) is nothing to be spent on: it takes more time to be
    worked off than anybody can foresee. Nor is a rise as never before: it is taken to make one without end.
    """
    pieces = account.owed_s / max(lead_s, 1.0)
    if waits_s > lead_s:
        pieces = min(pieces, 0.0)
    return price_per_record / (1.0 - keep) * math.exp(min(DEAREST, max(CHEAPEST, -pieces)))
