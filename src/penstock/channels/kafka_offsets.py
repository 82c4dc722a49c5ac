"""What a query has taken of a topic, from offsets alone: in its checkpoint and in its progress events.

How far every reader is, is also written down at the broker, as consumer groups do it. What all of them are
done with is deleted: a record lives as long as somebody has not read it, and no longer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.channels.model import Arrival, Backlog, FinishedBatch
from penstock.channels.subscriptions import PREFIX, Subscription, subscriptions
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.kafka_admin import KafkaAdmin

POLL_S = 0.1
"""How long Spark waits before it looks for new records again, as our settings have it."""
CLEAN_EVERY_S = 10.0
LONGEST_PAUSE_S = 60.0
"""How long cleaning waits at most before it is tried again at a broker that does not answer."""
_EVENLY = (0.1, 0.3, 0.5, 0.7, 0.9)
_LOOKS_KEPT = 500
_ARRIVALS_KEPT = 200


class KafkaConsumption:
    """What one query's checkpoint and progress say of one topic."""

    def __init__(
        self,
        topic: str,
        reader: str,
        checkpoint: Checkpoint,
        readers: Sequence[str] = (),
        admin: Callable[[], KafkaAdmin] | None = None,
        outside: Path | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """`readers` are all units that read the topic; where one is missing, nothing is ever deleted.

        `outside` is the folder that says who else subscribes to it (`subscriptions`). With `durable` the
        checkpoint is on the disk for good before the broker is told how far the query is.
        """
        self._durable = durable
        self._outside = outside
        self._topic = topic
        self._reader = reader
        self._readers = tuple(readers)
        self._checkpoint = checkpoint
        self._admin = admin
        self._history = OffsetHistory()
        self._latest: dict[str, int] = {}
        self._arrivals: dict[int, list[Arrival]] = {}
        self._lock = threading.Lock()
        self._committed: dict[int, int] = {}
        self._deleted: dict[int, int] = {}
        self._passed_over: dict[str, dict[int, int]] = {}
        """By subscriber, up to where records are not kept for it any more, as far as that was counted."""
        self._clean_at_s = 0.0
        self._pause_s = CLEAN_EVERY_S

    def note(self, batch: FinishedBatch) -> None:
        """Take in the newest offsets there were, and when records arrived."""
        for source in batch.sources:
            if f"[{self._topic}]" not in str(source.get("description", "")):
                continue
            with self._lock:
                self._latest = _offsets(source.get("latestOffset"), self._topic) or self._latest
                found = self._history.note(batch.started_s, batch.ended_s, source)
                # An idle report carries the number of the batch to come, so a number may come twice.
                self._arrivals.setdefault(batch.number, []).extend(Arrival(*arrival) for arrival in found)
                for old in sorted(self._arrivals)[:-_ARRIVALS_KEPT]:
                    del self._arrivals[old]

    def backlog(self) -> Backlog:
        """Records behind the last started micro-batch, as last heard of, and those within it."""
        started = self._checkpoint.started()
        end = offset_of(self._topic, self._checkpoint, started) or {}
        with self._lock:
            waiting = sum(max(0, n - end.get(place, 0)) for place, n in self._latest.items())
        if started <= self._checkpoint.finished():
            return Backlog(waiting)
        begin = offset_of(self._topic, self._checkpoint, started - 1) or self._first()
        return Backlog(waiting, sum(max(0, n - begin.get(place, n)) for place, n in end.items()))

    def arrivals(self, batch_id: int, at_s: Callable[[float], float] = float) -> list[Arrival]:
        """When the records of a noted micro-batch arrived, by the clock of the notes."""
        with self._lock:
            return list(self._arrivals.get(batch_id, ()))

    def place(self, batch_id: int) -> str:
        """The end offsets of a micro-batch."""
        return json.dumps(offset_of(self._topic, self._checkpoint, batch_id) or {}, sort_keys=True)

    def taken(self) -> int:
        """Records of every micro-batch finished since the query's first start."""
        end = offset_of(self._topic, self._checkpoint, self._checkpoint.finished())
        begin = self._first()
        return 0 if end is None or not begin else sum(end.values()) - sum(begin.values())

    def finished(self) -> dict[str, int]:
        """The offset behind the last finished micro-batch in each partition."""
        return offset_of(self._topic, self._checkpoint, self._checkpoint.finished()) or {}

    def clean(self) -> int:
        """Tell the broker how far the query is, and delete what every reader is done with; how many records.

        ClusterError where the broker does not answer; it is asked again after a growing pause.
        """
        now_s = time.monotonic()
        if self._admin is None or self._reader not in self._readers or now_s < self._clean_at_s:
            return 0
        done = {int(place): int(offset) for place, offset in self.finished().items()}
        self._clean_at_s = now_s + self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
        if not done:
            return 0
        with self._admin() as admin:
            if done != self._committed:
                if self._durable:
                    self._checkpoint.sync()
                admin.commit(self._group(self._reader), self._topic, done)
                self._committed = done
            told = [done, *(admin.committed(self._group(r), self._topic) for r in self._others())]
            told += [self._kept_for(each, admin, done) for each in self._subscribers()]
            least = {place: min(each.get(place, 0) for each in told) for place in done}
            new = {place: n for place, n in least.items() if n > self._deleted.get(place, 0)}
            if new:
                admin.delete_before(self._topic, new)
        self._pause_s, self._clean_at_s = CLEAN_EVERY_S, now_s + CLEAN_EVERY_S
        count = sum(n - self._deleted.get(place, 0) for place, n in new.items())
        self._deleted.update(new)
        return count

    @property
    def overgrown(self) -> bool:
        """Never: offsets take the same room for ever."""
        return False

    def shorten(self) -> None:
        """Nothing to drop."""

    def _subscribers(self) -> list[Subscription]:
        return [] if self._outside is None else list(subscriptions(self._outside))

    def _kept_for(self, each: Subscription, admin: KafkaAdmin, done: Mapping[int, int]) -> dict[int, int]:
        """From where on records are kept for somebody outside: what it has not read, within its bound.

        It reads by any client of Kafka, as a group of its own. One that has said nothing yet begins with
        what is still kept when it is first seen.
        """
        terms = each.terms()
        if terms is None:
            return dict(done)
        group = self._group(f"{PREFIX}{terms.name}")
        at = admin.committed(group, self._topic)
        if not at:
            at = {place: self._deleted.get(place, 0) for place in done}
            admin.commit(group, self._topic, at)
        most = -(-terms.most_records // max(1, len(done)))
        kept = {place: max(at.get(place, 0), n - most) for place, n in done.items()}
        waiting = sum(n - kept[place] for place, n in done.items() if n > kept[place])
        counted = self._passed_over.setdefault(terms.name, {})
        newly = {place: n - max(at.get(place, 0), counted.get(place, 0)) for place, n in kept.items()}
        counted.update(kept)
        each.note(waiting, sum(n for n in newly.values() if n > 0))
        return kept

    def _group(self, reader: str) -> str:
        return f"{self._topic}.{reader}"

    def _others(self) -> list[str]:
        return [reader for reader in self._readers if reader != self._reader]

    def _first(self) -> dict[str, int]:
        """What the query began with."""
        index = self._checkpoint.source_of(f'"{self._topic}"')
        return {} if index is None else _offsets(self._checkpoint.first_offsets(index), self._topic)


class OffsetHistory:
    """When records arrived in a topic, from the newest offsets Spark saw at the start of each micro-batch.

    Between two looks records are taken to arrive evenly; no record is looked at. Partitions are added up:
    Spark takes from each in proportion to what waits there.
    """

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._newest: list[int] = []
        self._ended_s = 0.0

    def note(self, started_s: float, ended_s: float, source: Mapping[str, Any]) -> list[tuple[float, float]]:
        """Take in a micro-batch's part of a progress event: arrival times, and records at each."""
        newest, end = _total(source.get("latestOffset")), _total(source.get("endOffset"))
        begin = _total(source.get("startOffset"))
        # Spark counts what tasks have read; a task that ran twice counts twice, offsets do not.
        rows = int(source.get("numInputRows") or 0) if begin is None or end is None else end - begin
        if newest is None or end is None:
            return []
        if self._times_s and started_s - self._ended_s > 2 * POLL_S:
            # Spark has looked in vain since the last batch, the last time just before this one.
            self._look(started_s - POLL_S, self._newest[-1])
        self._look(started_s, newest)
        self._ended_s = ended_s
        if not rows:
            return []
        taken = [end - rows * (1 - share) for share in _EVENLY]
        instants_s = np.interp(taken, self._newest, self._times_s)
        return [(float(instant_s), rows / len(_EVENLY)) for instant_s in instants_s]

    def _look(self, at_s: float, newest: int) -> None:
        self._times_s.append(at_s)
        self._newest.append(newest)
        if len(self._times_s) > 2 * _LOOKS_KEPT:
            # What was seen long ago matters only for a long backlog: every other look of it stays.
            self._times_s[:_LOOKS_KEPT] = self._times_s[:_LOOKS_KEPT:2]
            self._newest[:_LOOKS_KEPT] = self._newest[:_LOOKS_KEPT:2]


def offset_of(topic: str, checkpoint: Checkpoint, batch_id: int) -> dict[str, int] | None:
    """The end offset of a topic's partitions in one micro-batch; None where it has none."""
    for offset in checkpoint.offsets(batch_id):
        if offset and topic in offset:
            return {place: int(number) for place, number in offset[topic].items()}
    return None


def _offsets(value: Any, topic: str) -> dict[str, int]:
    if isinstance(value, str):
        value = json.loads(value)
    return dict(value.get(topic, {})) if isinstance(value, dict) else {}


def _total(value: Any) -> int | None:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict) or not value:
        return None
    return sum(int(n) for partitions in value.values() for n in partitions.values())
