"""Files that go from one version of a topology to the next, while none of the units concerned runs.

A unit that begins anew gets an empty checkpoint; the one it had is kept. Folders that another unit or
operator writes from now on get its mark. Where a unit begins in a topic it has not read yet is written down.
Streams that ended are cleared away once they are empty. Everything here can be done again without harm: a
controller that dies amid it does all of it once more.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.channels.batches import begin_behind, hand_over, last_batch
from penstock.channels.model import RecordChannel
from penstock.channels.registry import has_server
from penstock.channels.subscriptions import subscriptions
from penstock.runs.changes import Preview
from penstock.spark.checkpoints import Checkpoint, SinkLog
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import UnitInput, UnitPlan, generated_sources, plan_unit
from penstock.spark.unit.streams import Channels, folders_written, taken_by
from penstock.topology.model import Topology

_KEPT = ("checkpoint", "checkpoint-sources.json", "staging")
"""What of a unit's folder belongs to one checkpoint."""


class Handover:
    """All that has to be done to a run's files between two versions of its topology."""

    def __init__(
        self,
        old: Topology,
        new: Topology,
        found: Preview,
        folders: RunFolders,
        revision: int,
        bootstrap: str | None = None,
        begins: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None,
    ) -> None:
        """`revision` is the number of the version that ends.

        `begins` says of units that come from another site's run where they go on reading.
        """
        self._old, self._new, self._found = old, new, found
        self._folders = folders
        self._revision = revision
        self._bootstrap = bootstrap
        self._begins = begins or {}
        self.left: dict[str, dict[str, dict[str, int]]] = {}
        """Where units that go to another site's run have ended, as `begins` has it there."""

    def carry_out(self, back: bool = False) -> list[str]:
        """Do it; what there is to say. `back` says that the version that ends failed and is taken back."""
        self._count()
        self.left = {unit: self._end(unit) for unit in self._found.stops if unit in self._new.unit_by_name}
        for unit in (*self._found.restarts, *self._found.renewals, *self._found.starts):
            self._note_begin(unit)
        for unit in self._found.renewals:
            if not (back and self._put_back(unit)):
                self._put_aside(unit)
        for unit in (*self._found.stops, *self._found.starts):
            self._put_aside(unit, anew=unit in self._begins)
        for unit in (*self._found.restarts, *self._found.renewals, *self._found.starts):
            self._hand_over(unit)
        self._begin_sources()
        return list(self._clear_away())

    def _count(self) -> None:
        """Write down what units have finished of streams that their checkpoints will not know of."""
        channels = Channels(self._old, self._folders, self._bootstrap)
        for unit in self._found.renewals:
            if not self._aside(unit).exists():
                taken = taken_by(self._old, unit, self._folders, self._bootstrap)
                earlier = self._folders.taken_before(unit)
                self._folders.note_taken(unit, self._revision, (taken or earlier) - earlier)
        for unit in self._found.restarts:
            stays = {(given.name, given.channel) for given in plan_unit(self._new, unit).inputs}
            gone = [g for g in plan_unit(self._old, unit).inputs if (g.name, g.channel) not in stays]
            counts = [channels.taken(given, self._folders.checkpoint(unit)) for given in gone]
            if any(counts):
                self._folders.note_taken(unit, self._revision, sum(filter(None, counts)))

    def _note_begin(self, unit: str) -> None:
        """Write down where a unit begins to read topics: where whoever wrote them has ended.

        One that begins anew goes on where it was in those it has read already.
        """
        if unit in self._begins:
            self._folders.note_begin(unit, self._begins[unit])
            return
        renewed = unit in self._found.renewals
        if renewed and self._aside(unit).exists():
            return  # it was, before its checkpoint was put aside
        channels, before = Channels(self._old, self._folders, self._bootstrap), self._old.unit_by_name
        known = {(g.name, g.channel): g for g in _inputs(self._old, unit)} if unit in before else {}
        found: dict[str, Mapping[str, int]] = {}
        for given in _inputs(self._new, unit):
            if given.stream is None or not has_server(self._new, given.channel):
                continue
            earlier, writer = known.get((given.name, given.channel)), self._old.unit_of.get(given.name)
            if earlier is None and writer is not None:
                found[given.name] = self._folders.reached(writer).get(given.name, {})
            elif earlier is not None and earlier.stream is not None and renewed:
                stream, checkpoint = earlier.stream, self._folders.checkpoint(unit)
                found[given.name] = channels[given.channel].consumption(stream, checkpoint).finished()
        self._folders.note_begin(unit, {name: begin for name, begin in found.items() if begin})

    def _end(self, unit: str) -> dict[str, dict[str, int]]:
        """How far a unit that does not run has read each stream: where it began, where that was nowhere."""
        channels, checkpoint = Channels(self._old, self._folders, self._bootstrap), self._aside(unit)
        present = self._folders.checkpoint(unit)
        lies = present if present.exists() else checkpoint / "checkpoint"
        begun, found = self._folders.begin(unit), {}
        for given in _inputs(self._old, unit):
            if given.stream is not None and has_server(self._old, given.channel):
                read = channels[given.channel].consumption(given.stream, lies).finished()
                found[given.name] = {**begun.get(given.name, {}), **read}
        return {name: offsets for name, offsets in found.items() if offsets}

    def _aside(self, unit: str, revision: int | None = None) -> Path:
        return self._folders.earlier(unit) / str(self._revision if revision is None else revision)

    def _put_aside(self, unit: str, anew: bool = False) -> None:
        """Keep what a unit's checkpoint was, and only the newest such; the next one begins empty.

        `anew` says that what is there now is from before what was kept, and is not to be taken for newer.
        """
        aside = self._aside(unit)
        aside.mkdir(parents=True, exist_ok=True)
        for older in aside.parent.iterdir():
            if older.name.isdigit() and older != aside:
                shutil.rmtree(older, ignore_errors=True)
        for name in _KEPT:
            present = self._folders.unit(unit) / name
            if present.exists() and not (aside / name).exists():
                present.rename(aside / name)
            elif present.is_dir() and anew:
                shutil.rmtree(present)
            elif anew:
                present.unlink(missing_ok=True)

    def _put_back(self, unit: str) -> bool:
        """Give a unit back the checkpoint it had, where the version that failed has finished nothing."""
        aside, checkpoint = self._aside(unit, self._revision - 1), self._folders.checkpoint(unit)
        if not (aside / "checkpoint").exists():
            return False
        if Checkpoint(checkpoint).finished() >= 0 or SinkLog(self._folders.staging(unit)).numbers_from(0):
            return False
        for name in _KEPT:
            present = self._folders.unit(unit) / name
            if present.is_dir():
                shutil.rmtree(present)
            else:
                present.unlink(missing_ok=True)
            if (aside / name).exists():
                (aside / name).rename(present)
        self._folders.note_taken(unit, self._revision - 1, 0)
        return True

    def _hand_over(self, unit: str) -> None:
        """Give the folders a unit writes from now on its mark."""
        plan, checkpoint = plan_unit(self._new, unit), Checkpoint(self._folders.checkpoint(unit))
        same, next_batch = checkpoint.identity(), checkpoint.finished() + 1
        channel = _on_disk(self._new, self._folders, plan.channel.name)
        for outlet in plan.outlets:
            mark = self._folders.writer(unit, outlet.operator)
            for folder in _written(plan, outlet.operator, self._folders, channel):
                hand_over(folder, mark, next_batch, same)
            stream = channel.stream(outlet.operator) if channel is not None and outlet.streams else None
            for each in subscriptions(stream) if stream is not None else ():
                hand_over(each.folder, mark, next_batch, same)
        staging = self._folders.staging(unit)
        if plan.outlets and staging.exists():
            hand_over(staging, self._folders.writer(unit, plan.outlets[0].operator), next_batch, same)

    def _begin_sources(self) -> None:
        """Let units that begin to read a generated source begin where those before them ended."""
        before = generated_sources(self._old)
        for source, units in generated_sources(self._new).items():
            root = self._folders.sources / source
            reached = min((last_batch(root / unit) for unit in before.get(source, ())), default=-1)
            for unit in units:
                if unit not in before.get(source, ()):
                    begin_behind(root / unit, reached)

    def _clear_away(self) -> Iterable[str]:
        now = {(given.name, unit) for unit in self._new.unit_by_name for given in _inputs(self._new, unit)}
        for name, unit in self._found.ending:
            for given in _inputs(self._old, unit):
                if given.name != name or (name, unit) in now or given.stream is None:
                    continue
                channel = _on_disk(self._old, self._folders, given.channel)
                folder = channel.batches_of(given.stream) if channel is not None else None
                if folder is None:
                    continue
                left = sum(len(_data(names)) for _, _, names in os.walk(folder))
                if left:
                    yield f"{left} file(s) of the stream from {name} to {unit} were not read; see {folder}"
                else:
                    shutil.rmtree(folder, ignore_errors=True)


def _inputs(topology: Topology, unit: str) -> tuple[UnitInput, ...]:
    return plan_unit(topology, unit).inputs


def _data(names: list[str]) -> list[str]:
    return [name for name in names if name[0] not in "._"]


def _on_disk(topology: Topology, folders: RunFolders, name: str | None) -> RecordChannel | None:
    """A channel whose records lie on this disk; None where they go through a server."""
    return None if has_server(topology, name) else Channels(topology, folders, None)[name]


def _written(plan: UnitPlan, operator: str, folders: RunFolders, channel: RecordChannel | None) -> list[Path]:
    """The folders of batches in which one operator's records are left."""
    only = replace(plan, outlets=tuple(outlet for outlet in plan.outlets if outlet.operator == operator))
    return folders_written(only, folders, channel)
