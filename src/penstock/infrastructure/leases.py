"""Leases and the ledger: what machines cost, exactly.

A lease is paid in steps of time: at least so many at once, then every started one whole. With one step
at once this is the papers' billing time unit (BTU); 60 s at once and then every second is how the large
clouds bill. A lease that is not ended goes on into the next step, and ending early wastes what is paid.
Money is Decimal throughout.
The ledger's total is the sum of all charges, and always that over the leases and what was metered.
Prices are kept to a millionth of a millionth, so that every product and sum of them is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from penstock.errors import ConfigurationError
from penstock.topology.model import HostFlavour, Site

PRICE_STEP = Decimal("1e-12")
"""The finest price: a third of a cent has no last digit, and sums of endless fractions would drift apart."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A host's paid time."""

    host: str
    site: str
    flavour: str
    started_s: float
    btu_s: float
    """The step that time is paid in."""
    price_per_btu: Decimal
    """What one step costs."""
    units: int = 1
    """Steps paid so far, from the start on those of the minimum; none where the lease was refused."""
    ended_s: float | None = None
    currency: str = ""

    def __post_init__(self) -> None:
        if not self.btu_s > 0 or self.price_per_btu < 0:
            raise ConfigurationError(
                f"a lease needs a billing time unit above 0 s and a price of 0 or more, "
                f"got {self.btu_s:g} s and {self.price_per_btu}"
            )
        exponent = self.price_per_btu.as_tuple().exponent
        if isinstance(exponent, int) and exponent < -12:
            object.__setattr__(self, "price_per_btu", self.price_per_btu.quantize(PRICE_STEP))

    @staticmethod
    def at(site: Site, flavour: HostFlavour, host: str, started_s: float) -> Lease:
        """A lease that begins now, by the billing rule of its site."""
        return Lease(
            host,
            site.name,
            flavour.name,
            started_s,
            site.step_s,
            site.price_per_step(flavour),
            site.least_steps,
            currency=site.currency,
        )

    @property
    def paid_until_s(self) -> float:
        """The end of the time paid so far."""
        return self.started_s + self.units * self.btu_s

    @property
    def cost(self) -> Decimal:
        """What the lease has cost so far."""
        return self.units * self.price_per_btu

    @property
    def open(self) -> bool:
        """Whether the host is still leased."""
        return self.ended_s is None

    def remaining_s(self, now_s: float) -> float:
        """Paid time left at an instant; never negative."""
        return max(0.0, self.paid_until_s - now_s)

    def units_due(self, now_s: float) -> int:
        """Units that have to be paid at an instant: every started one, the first at once."""
        until_s = now_s if self.ended_s is None else self.ended_s
        # The tolerance keeps an instant computed as start + n * BTU from starting unit n + 1: seconds
        # since 1970 carry 2.4e-7 s of rounding.
        return max(1, math.ceil((until_s - self.started_s) / self.btu_s - 1e-6))

    def paid_through(self, units: int) -> Lease:
        """The lease with so many units paid in all; it never becomes fewer."""
        return replace(self, units=max(self.units, units))

    def ended(self, now_s: float) -> Lease:
        """The lease ended now: units started by then are paid, the paid rest is wasted."""
        closed = replace(self, ended_s=now_s)
        return closed.paid_through(closed.units_due(now_s))


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry of the ledger: some billing time units of one lease, paid (or paid back) at an instant."""

    host: str
    at_s: float
    units: int
    amount: Decimal
    reason: str


MONTH_S = 30 * 86400.0
"""The month that budgets and expectations are for."""


def month_at(leases: Iterable[Lease]) -> Decimal:
    """What these leases cost in a month of 30 days, if none ends and none begins."""
    return sum((lease.price_per_btu * Decimal(str(MONTH_S / lease.btu_s)) for lease in leases), Decimal(0))


class Ledger:
    """Every lease of a run and the sum of its charges; the one place where money is counted."""

    def __init__(self, leases: Iterable[Lease] = (), charges: Iterable[Charge] = ()) -> None:
        """Charges are added up, not kept: where time is paid by the second, each turn brings one a host."""
        self._leases: dict[str, Lease] = {lease.host: lease for lease in leases}
        self._open: dict[str, Lease] = {host: lease for host, lease in self._leases.items() if lease.open}
        self._total = sum((charge.amount for charge in charges), Decimal(0))

    @property
    def leases(self) -> dict[str, Lease]:
        """Every lease by host, ended ones too. Do not change it."""
        return self._leases

    @property
    def total(self) -> Decimal:
        """The bill: the sum of the charges."""
        return self._total

    def spent(self, site: str, now_s: float) -> Decimal:
        """What leases of a site cost that were open at some time in the last 30 days."""
        return sum(
            (
                lease.cost
                for lease in self._leases.values()
                if lease.site == site and (lease.ended_s is None or lease.ended_s > now_s - MONTH_S)
            ),
            Decimal(0),
        )

    def open_leases(self) -> dict[str, Lease]:
        """Leases of hosts not yet released, by host."""
        return dict(self._open)

    def lease(self, lease: Lease, reason: str) -> Charge | None:
        """Book a new lease and its first unit; None where the host is leased already (said again)."""
        if lease.host in self._leases:
            return None
        self._set(lease)
        return self._charge(lease.host, lease.started_s, lease.units, reason)

    def prolong(self, host: str, now_s: float, reason: str) -> Charge | None:
        """Pay one further unit ahead; None where the lease is over or the unit after this one is paid."""
        lease = self._leases.get(host)
        if lease is None or not lease.open or lease.units > lease.units_due(now_s):
            return None
        return self._pay(host, lease.units + 1, now_s, reason)

    def settle(self, now_s: float) -> list[Charge]:
        """Pay every unit that has started by now on an open lease: nobody gets time for nothing."""
        charges = []
        for host, lease in tuple(self._open.items()):
            if lease.units_due(now_s) > lease.units:
                charges.append(self._pay(host, lease.units_due(now_s), now_s, "lease ran on"))
        return charges

    def end(self, host: str, now_s: float) -> Charge | None:
        """End a lease now, paying what had started; None where nothing more is due or it had ended."""
        lease = self._leases.get(host)
        if lease is None or not lease.open:
            return None
        closed = lease.ended(now_s)
        self._set(closed)
        extra = closed.units - lease.units
        return self._charge(host, now_s, extra, "units started before release") if extra else None

    def reopen(self, host: str) -> bool:
        """Take back the end of a lease whose host was not given back after all; False where it is open."""
        lease = self._leases.get(host)
        if lease is None or lease.open:
            return False
        self._set(replace(lease, ended_s=None))
        return True

    def void(self, host: str, reason: str) -> Charge | None:
        """Take a lease back that the provider refused: it ends where it began and costs nothing."""
        lease = self._leases.get(host)
        if lease is None or not lease.open:
            return None
        self._set(replace(lease, units=0, ended_s=lease.started_s))
        return self._charge(host, lease.started_s, -lease.units, reason)

    def book(self, charges: Iterable[Charge]) -> None:
        """Enter charges that belong to no lease, such as those of metered instances."""
        self._total += sum((charge.amount for charge in charges), Decimal(0))

    def correct(self, lease: Lease, now_s: float, reason: str) -> Charge | None:
        """Put a lease as its provider recorded it in the place of ours; None where nothing more is due."""
        known = self._leases.get(lease.host)
        owed = lease.cost - (known.cost if known is not None else 0)
        units = lease.units - (known.units if known is not None else 0)
        self._set(lease)
        if not owed:
            return None
        charge = Charge(lease.host, now_s, units, owed, reason)
        self.book((charge,))
        return charge

    def _set(self, lease: Lease) -> None:
        self._leases[lease.host] = lease
        if lease.open:
            self._open[lease.host] = lease
        else:
            self._open.pop(lease.host, None)

    def _pay(self, host: str, units: int, now_s: float, reason: str) -> Charge:
        lease = self._leases[host]
        self._set(lease.paid_through(units))
        return self._charge(host, now_s, units - lease.units, reason)

    def _charge(self, host: str, now_s: float, units: int, reason: str) -> Charge:
        charge = Charge(host, now_s, units, units * self._leases[host].price_per_btu, reason)
        self.book((charge,))
        return charge
