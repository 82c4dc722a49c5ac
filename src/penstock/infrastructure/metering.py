"""What instances cost where hosts are not leased: cores and memory by the hour, from a site's price list.

Time is counted tick by tick and charged once a minute, so that the books stay short; `charged` at the end of
a run takes what is left. The entry's host is the one the cluster manager stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from penstock.infrastructure.leases import PRICE_STEP, Charge
from penstock.topology.model import Site

CHARGE_EVERY_S = 60.0
HOUR_S = Decimal(3600)
GIB = Decimal(1024)
MICROSECOND = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Held:
    """What instances on one host hold at present."""

    host: str
    site: str
    cores: float
    memory_mib: int


@dataclass(slots=True)
class _Account:
    site: str
    since_s: float
    seen_s: float
    core_s: Decimal = Decimal(0)
    gib_s: Decimal = Decimal(0)


class InstanceMeter:
    """Counts what instances use on hosts that nobody leases, and charges it by their sites' prices."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = sites
        self._accounts: dict[str, _Account] = {}

    def charged(self, used: Iterable[Held], now_s: float, *, end: bool = False) -> list[Charge]:
        """Count the time since the last look by what is used now; the charges that are due.

        With `end` everything counted so far is due.
        """
        charges = []
        for one in used:
            site = self._sites[one.site]
            if not site.core_hour and not site.gib_hour:
                continue
            account = self._accounts.setdefault(one.host, _Account(one.site, now_s, now_s))
            passed_s = Decimal(max(0.0, now_s - account.seen_s)).quantize(MICROSECOND)
            account.core_s += Decimal(str(one.cores)) * passed_s
            account.gib_s += Decimal(one.memory_mib) / GIB * passed_s
            account.seen_s = now_s
        for host, account in self._accounts.items():
            if (end or now_s - account.since_s >= CHARGE_EVERY_S) and (account.core_s or account.gib_s):
                charges.append(self._charge(host, account, now_s))
        return charges

    def _charge(self, host: str, account: _Account, now_s: float) -> Charge:
        site = self._sites[account.site]
        amount = (account.core_s * site.core_hour + account.gib_s * site.gib_hour) / HOUR_S
        reason = f"{account.core_s / HOUR_S:.4f} core hours, {account.gib_s / HOUR_S:.4f} GiB hours"
        account.core_s, account.gib_s, account.since_s = Decimal(0), Decimal(0), now_s
        return Charge(host, now_s, 0, amount.quantize(PRICE_STEP), reason)
