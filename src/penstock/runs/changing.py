"""A change of a running topology, from the moment it is asked for until the next version runs.

What only the loop looks at is taken up at once. Where units have to be changed, they are told to finish what
there is to read and leave, those that write a stream that ends before those that read it. When all have,
their files are handed over, the next version is written into the plan, and they are started again. Until then
the version before is the one in the plan: a change that does not come to its end is given up, and everything
goes on as it was. A change under way is in the plan too, so that a controller that dies amid it goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError
from penstock.fleet.units import UnitState
from penstock.runs.assembly import budgeting_for
from penstock.runs.changes import Preview, preview, producers, require_possible
from penstock.runs.handover import Handover
from penstock.runs.plan import Pending
from penstock.runs.rehearsing import Rehearsing
from penstock.spark.unit.plan import generated_sources
from penstock.spark.unit.specification import topology_text
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run

LONGEST_DRAIN_S = 600.0
"""A change whose units have not finished what there was to read after this time is given up."""


class Changing:
    """The change a run is in the midst of, if any. Use it from the loop's thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._found: Preview | None = None
        self._since_s = 0.0
        self._rehearsing: Rehearsing | None = None
        self._stuck = False

    @property
    def under_way(self) -> bool:
        """Whether the run is in the midst of a change."""
        return self._run.plan.pending is not None

    def begin(self, topology: Topology, pending: Pending) -> Preview:
        """Begin to go on with another version; ConfigurationError where that cannot be, or not now."""
        run = self._run
        if run.plan.pending is not None:
            raise ConfigurationError("another change is under way; wait until it is done")
        found = preview(run.topology, topology, fed=run.plan.feed and run.feed.can_wait)
        require_possible(found, give_up_state=pending.give_up_state or pending.back)
        run.require_runnable(topology)
        if found.changes:
            run.plan = replace(run.plan, pending=replace(pending, topology=topology_text(topology)))
            if found.drains:
                run.folder.write_plan(run.plan)
                run.plane.note(
                    f"a change is under way: {', '.join(found.drains)} finish what there is to read"
                )
            self.step()
        return found

    def take_up(self) -> None:
        """Go on with the change an earlier controller was in the midst of: its sources wait first of all."""
        run, pending = self._run, self._run.plan.pending
        if pending is not None:
            topology = parse_topology(pending.topology)
            found = self._found = preview(run.topology, topology, fed=run.plan.feed)
            self._since_s = run.clock.now_s()
            if pending.rehearse:
                self._rehearsing = Rehearsing(run, topology, pending.topology, found)
                return
            run.feed.pause({name for name, _ in found.ending if name in generated_sources(run.topology)})

    def step(self) -> None:
        """Bring the change under way a step further; nothing where there is none."""
        run, pending = self._run, self._run.plan.pending
        if pending is None:
            return
        if self._found is None:
            self.take_up()
        if self._rehearsing is not None and not self._rehearsed(self._rehearsing):
            return
        pending = run.plan.pending
        found, fleet = self._found, run.running_controller().fleet
        assert found is not None
        assert pending is not None
        topology, lives = parse_topology(pending.topology), fleet.units
        failed = {unit for unit in found.drains if lives[unit].state is UnitState.FAILED}
        if failed and not pending.back:
            self.give_up(f"unit {', '.join(sorted(failed))} failed before it had finished what there was")
            return
        done = {unit for unit in found.drains if self._has_left(unit)} | failed
        ready = {u for u in found.drains if producers(run.topology, u, found.ending) - failed <= done}
        fleet.drain(ready)
        for unit in ready - done:
            # Not only at the next tick: everybody waits for it.
            run.plane.tell(unit, fleet.wanted(unit), run.clock.now_s())
        if done.issuperset(found.drains):
            self._switch(topology, found, pending)
        elif run.clock.now_s() - self._since_s > LONGEST_DRAIN_S:
            waits = ", ".join(sorted(set(found.drains) - done))
            self.give_up(f"{waits} did not finish what there was within {LONGEST_DRAIN_S:.0f} s")

    def _rehearsed(self, rehearsing: Rehearsing) -> bool:
        """Whether the rehearsal is over and nothing speaks against the change; else it is given up."""
        run, pending = self._run, self._run.plan.pending
        if pending is None or not rehearsing.step():
            return False
        self._rehearsing = None
        if rehearsing.problem is not None:
            self.give_up(rehearsing.problem)
            return False
        run.plan = replace(run.plan, pending=replace(pending, rehearse=False))
        run.folder.write_plan(run.plan)
        self.take_up()
        return True

    def _has_left(self, unit: str) -> bool:
        drivers = self._run.drivers
        state = self._run.running_controller().fleet.units[unit].state
        return state is UnitState.DRAINED or (not drivers.alive(unit) and drivers.is_drained(unit))

    def give_up(self, problem: str) -> None:
        """Take the change under way back: everything goes on in the version there is."""
        run, pending, found = self._run, self._run.plan.pending, self._found
        if pending is None:
            return
        if self._rehearsing is not None:
            self._rehearsing.stop()
            self._rehearsing = None
        run.plan = replace(run.plan, pending=None)
        run.folder.write_plan(run.plan)
        fleet, now_s = run.running_controller().fleet, run.clock.now_s()
        fleet.drain(())
        for unit in found.drains if found is not None else ():
            if self._has_left(unit):
                fleet.restart(unit, fleet.units[unit].revision, now_s)
        run.feed.pause(())
        self._found = None
        run.plane.note(f"{pending.refusal}{problem}; the version before goes on")

    def _switch(self, topology: Topology, found: Preview, pending: Pending) -> None:
        """Everybody concerned has left: hand over the files, and start the next version."""
        run = self._run
        took_s = run.clock.now_s() - self._since_s
        handover = Handover(run.topology, topology, found, run.folder.units, run.plan.revision, run.bootstrap)
        try:
            notices = handover.carry_out(pending.back)
        except OSError as error:
            # What was handed over stays so: it is done once more, until the disk takes it.
            if not self._stuck:
                run.plane.note(f"files cannot be handed over yet, it is tried again: {error}")
            self._stuck = True
            return
        self._stuck = False
        anew = (*found.restarts, *found.renewals)
        run.plan = replace(run.plan.changed(topology, anew), pending=None)
        run.folder.write_plan(run.plan)
        run.topology, run.changed_s = topology, run.clock.now_s()
        run.progress.change(topology)
        run.plane.change(topology.unit_by_name)
        planned, revision = run.clusters.change(topology), run.plan.revision
        run.running_controller().change(planned, revision, anew, budgeting_for(topology))
        run.feed.change(topology)
        self._found = None
        for notice in notices:
            run.plane.note(notice)
        said = f"revision {revision}: {'; '.join(map(str, found.changes))} ({pending.reason})"
        run.plane.note(said + (f"; drained in {took_s:.1f} s" if found.drains else ""))
