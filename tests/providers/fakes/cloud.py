"""What every fake of a cloud has in common: its machines, its billing record, and what goes wrong."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.providers.cloud_api import FLAVOUR, HOST, OWNER, SITE, group_of

FAULTS = ("lost", "before", "quota", "capacity", "throttled", "unauthorised")
"""What may become of a call: carried out and the answer lost, failed before, and four kinds of no."""


@dataclass
class Recorded:
    """What the cloud's billing knows of one machine."""

    id: str
    tags: dict[str, str]
    from_s: float
    address: str
    group: str = ""
    """The one tag that listings filter by."""
    until_s: float | None = None
    user_data: str = ""
    token: str = ""
    broken: bool = False
    taken_s: float | None = None

    @property
    def host(self) -> str:
        return self.tags.get(HOST, "")

    @property
    def flavour(self) -> str:
        return self.tags.get(FLAVOUR, "")


class FaultError(Exception):
    """A call that goes wrong in one of the FAULTS; each fake says it in its cloud's own words."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass
class FakeCloud:
    """The machines of a cloud that is not one."""

    call_s: float = 0.0
    """What every call takes."""
    failing_ratio: float = 0.0
    """Calls that fail; half of them after they were carried out."""
    lag_s: float = 0.0
    """How late a machine appears in a listing."""
    boot_s: float = 0.0
    honours_tokens: bool = True
    quota: int | None = None
    away: bool = False
    seed: int = 1
    faults: list[str] = field(default_factory=list)
    """What becomes of the next creates, one each."""
    stuck: set[str] = field(default_factory=set)
    """Hosts that never run."""
    calls: int = 0
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The last create, as it came over the wire."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.random = random.Random(self.seed)
        self.records: dict[str, Recorded] = {}

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call: its time passes; FaultError before it is carried out or after."""
        with self.lock:
            self.calls += 1
            fails = self.random.random() < self.failing_ratio
            before = fails and self.random.random() < 0.5
        if self.call_s:
            time.sleep(self.call_s)
        if self.away:
            raise FaultError("before")
        if before:
            raise FaultError(self.random.choice(("before", "throttled")))
        yield
        if fails:
            raise FaultError("lost")

    def make(
        self, tags: Mapping[str, str], token: str = "", user_data: str = "", group: str = ""
    ) -> Recorded:
        """Carry a create out; FaultError where it is refused or its answer lost."""
        with self.lock:
            fault = self.faults.pop(0) if self.faults else None
            if fault is not None and fault != "lost":
                raise FaultError(fault)
            found = next((r for r in self.records.values() if token and r.token == token), None)
            if found is None or not self.honours_tokens:
                if self.quota is not None and len(self.living()) >= self.quota:
                    raise FaultError("quota")
                found = self.add(tags, token, user_data, group)
            if fault == "lost":
                raise FaultError("lost")
            return found

    def add(self, tags: Mapping[str, str], token: str = "", user_data: str = "", group: str = "") -> Recorded:
        """A machine comes to be."""
        with self.lock:
            number = len(self.records) + 1
            record = Recorded(
                self.new_id(number, tags),
                dict(tags),
                time.time(),
                f"10.0.{number // 250}.{number % 250 + 1}",
                group,
                user_data=user_data,
                token=token,
            )
            self.records[record.id] = record
            return record

    def new_id(self, number: int, tags: Mapping[str, str]) -> str:
        """The cloud's name for a new machine."""
        return f"i-{number}"

    def remove(self, id: str) -> bool:
        """A machine ends; False where there is none."""
        with self.lock:
            record = self.records.get(id)
            if record is None or record.until_s is not None:
                return False
            record.until_s = time.time()
            return True

    def listed(self) -> list[Recorded]:
        """Machines as a listing shows them."""
        now_s = time.time()
        with self.lock:
            return [r for r in self.living() if now_s - r.from_s >= self.lag_s]

    def running(self, record: Recorded) -> bool:
        """Whether a machine has started."""
        return time.time() - record.from_s >= self.boot_s and record.host not in self.stuck

    def living(self) -> list[Recorded]:
        """Machines that are paid for now."""
        with self.lock:
            return [record for record in self.records.values() if record.until_s is None]

    def hosts(self) -> list[str]:
        """The names of the machines that are paid for now."""
        return sorted(record.host for record in self.living())

    # -- what a test does to it ----------------------------------------------------------------------

    def dies(self, host: str) -> None:
        """A machine vanishes."""
        for record in self.living():
            if record.host == host:
                self.remove(record.id)

    def breaks(self, host: str) -> None:
        """A machine stops working and is still there."""
        for record in self.living():
            if record.host == host:
                record.broken = True

    def gives_notice(self, host: str, in_s: float) -> None:
        """A machine will be taken away."""
        for record in self.living():
            if record.host == host:
                record.taken_s = time.time() + in_s

    def add_strange(self, host: str, owner: str, site: str = "c") -> Recorded:
        """A machine that nobody of ours asked for."""
        tags = {OWNER: owner, SITE: site, HOST: host, FLAVOUR: "standard"}
        return self.add(tags, group=group_of(owner, site))
