"""A change of a running topology, from the moment it is asked for until the next version runs.

What only the loop looks at is taken up at once. Where units have to be changed, drivers of their next version
are made ready beside them first (`preparing`). Then they are told to finish what there is to read and leave,
those that write a stream that has to be empty before those that read it. When all have, their files are
handed over, the next version is written into the plan, and the drivers that are ready take over. Until then
the version before is the one in the plan: a change that does not come to its end is given up, and everything
goes on as it was. A change under way is in the plan too, so that a controller that dies amid it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.channels.subscriptions import subscriptions
from penstock.errors import ConfigurationError
from penstock.fleet.units import UnitState
from penstock.runs.assembly import budgeting_for
from penstock.runs.changes import Preview, preview, require_possible, still_leased
from penstock.runs.handover import Handover
from penstock.runs.part import at_site, here
from penstock.runs.plan import Pending
from penstock.runs.preparing import Preparing
from penstock.runs.streams import subscribers
from penstock.spark.unit.plan import plan_unit
from penstock.spark.unit.specification import topology_text
from penstock.spark.unit.streams import Channels
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from penstock.runs.run import Run

SEEN_S = 60.0
"""How long hosts of the next version are kept until its instances were seen on them."""
LONGEST_DRAIN_S = 600.0
"""A change whose units have not finished what there was to read after this time is given up."""


class Changing:
    """The change a run is in the midst of, if any. Use it from the loop's thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._found: Preview | None = None
        self._since_s = 0.0
        self._preparing: Preparing | None = None
        self._ready = False
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
        places, fed = run.plan.places, run.plan.feed and run.feed.can_wait
        if pending.back and run.plan.site is not None:
            # Where other runs' units are is theirs to say, also where this one goes back.
            back = {unit: s for unit, s in pending.places.items() if places.get(unit) == run.plan.site}
            pending = replace(pending, places=back)
        found = preview(
            run.topology,
            topology,
            fed=fed,
            places=places,
            to=pending.places,
            leased=self._leased(),
            subscribers=subscribers(run.folder),
        )
        found = at_site(found, run.topology, topology, run.plan, pending.handed)
        require_possible(found, give_up_state=pending.give_up_state or pending.back)
        run.require_runnable(topology)
        self._require_unsubscribed([unit for unit in found.stops if unit in topology.unit_by_name])
        if found.changes:
            run.clusters.open(found.places.values())
            run.plan = replace(run.plan, pending=replace(pending, topology=topology_text(topology)))
            if found.drains and not pending.at_once:
                run.folder.write_plan(run.plan)
                run.plane.note(
                    f"a change is under way, for which {', '.join(found.drains)} will stop a moment"
                )
            self.step()
        return found

    def _require_unsubscribed(self, units: Sequence[str]) -> None:
        """ConfigurationError where somebody outside reads what a unit reads that goes to another run.

        What they have not read yet is kept by whoever reads the same, and only here they are known.
        """
        run = self._run
        channels = Channels(run.topology, run.folder.units, run.bootstrap)
        for unit in units:
            for given in plan_unit(run.topology, unit).inputs:
                stream = channels[given.channel].stream(given.name) if given.stream is not None else None
                if stream is not None and any(subscriptions(stream)):
                    raise ConfigurationError(
                        f"unit {unit} cannot go: subscribers to {given.name} are known here alone"
                    )

    def take_up(self) -> None:
        """Go on with the change an earlier controller was in the midst of: its sources wait first of all."""
        run, pending = self._run, self._run.plan.pending
        if pending is not None:
            topology = parse_topology(pending.topology)
            found = self._found = preview(
                run.topology, topology, fed=run.plan.feed, places=run.plan.places, to=pending.places
            )
            found = self._found = at_site(found, run.topology, topology, run.plan, pending.handed)
            self._since_s = run.clock.now_s()
            # What is taken back has failed already, and nothing of it is worth waiting for.
            self._ready = (
                pending.back or pending.at_once or not (found.restarts or found.renewals or found.starts)
            )
            # Where an earlier controller had come so far that somebody left, nobody waits longer than needed.
            self._ready = self._ready or any(map(self._has_left, found.drains))
            if self._ready:
                self._hold_sources(found)

    def step(self) -> bool:
        """Bring the change under way a step further; whether the next version was taken up by it."""
        run, pending = self._run, self._run.plan.pending
        if pending is None:
            return False
        if self._found is None:
            self.take_up()
        found, fleet = self._found, run.running_controller().fleet
        assert found is not None
        topology, lives = parse_topology(pending.topology), fleet.units
        if not self._ready and not self._prepared(topology, found, pending):
            return False
        failed = {unit for unit in found.drains if lives[unit].state is UnitState.FAILED}
        if failed and not pending.back:
            self.give_up(f"unit {', '.join(sorted(failed))} failed before it had finished what there was")
            return False
        done = {u for u in found.drains if pending.at_once or self._has_left(u)} | failed
        ready = found.may_drain(run.topology, done)
        fleet.drain(ready)
        for unit in ready - done:
            # Not only at the next tick: everybody waits for it.
            run.plane.tell(unit, fleet.wanted(unit), run.clock.now_s())
        if done.issuperset(found.drains):
            if leased := [*still_leased(run.topology, topology, self._leased())]:
                self.give_up("; ".join(leased))  # since it began
                return False
            if pending.at_once and run.plan.site is not None:
                for unit in found.stops:
                    run.drivers.end(unit)  # before another site's run hears that it has left
            return self._switch(topology, found, pending)
        if run.clock.now_s() - self._since_s > LONGEST_DRAIN_S:
            waits = ", ".join(sorted(set(found.drains) - done))
            self.give_up(f"{waits} did not finish what there was within {LONGEST_DRAIN_S:.0f} s")
        return False

    def _prepared(self, topology: Topology, found: Preview, pending: Pending) -> bool:
        """Whether the next version is ready beside the one that runs; else the change may be given up."""
        if self._preparing is None:
            self._preparing = Preparing(self._run, topology, found, insists=pending.rehearse)
        if not self._preparing.step():
            return False
        if self._preparing.problem is not None:
            self.give_up(self._preparing.problem)
            return False
        self._ready, self._since_s = True, self._run.clock.now_s()
        self._hold_sources(found)
        return True

    def _leased(self) -> set[tuple[str, str]]:
        """Site and flavour of the hosts there are."""
        hosts = self._run.running_controller().fleet.deployment().hosts.values()
        return {(host.site, host.flavour.name) for host in hosts}

    def _hold_sources(self, found: Preview) -> None:
        """Let generated sources wait whose streams are read to their end."""
        self._run.feed.pause(found.held(self._run.topology))

    def _has_left(self, unit: str) -> bool:
        state = self._run.running_controller().fleet.units[unit].state
        return state is UnitState.DRAINED or self._run.drivers.is_drained(unit)

    def give_up(self, problem: str) -> None:
        """Take the change under way back: everything goes on in the version there is."""
        run, pending, found = self._run, self._run.plan.pending, self._found
        if pending is None:
            return
        if self._preparing is not None:
            self._preparing.stop()
        self._preparing, self._ready = None, False
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

    def _switch(self, topology: Topology, found: Preview, pending: Pending) -> bool:
        """Everybody concerned has left: hand over the files and start the next version; whether it was."""
        run = self._run
        took_s = run.clock.now_s() - self._since_s
        begins = {unit: note.begin for unit, note in pending.handed.items() if unit in found.starts}
        handover = Handover(
            run.topology, topology, found, run.folder.units, run.plan.revision, run.bootstrap, begins
        )
        try:
            notices = handover.carry_out(pending.back)
        except OSError as error:
            # What was handed over stays so: it is done once more, until the disk takes it.
            if not self._stuck:
                run.plane.note(f"files cannot be handed over yet, it is tried again: {error}")
            self._stuck = True
            return False
        self._stuck = False
        anew = (*found.restarts, *found.renewals)
        plan = run.plan.changed(topology, anew, found.places)
        # What is taken back, by itself or by a person, is not put on trial: what it was taken back from
        # is no way out. Where it fails as well, a person is asked for.
        proven = pending.back or plan.topology == run.plan.before
        since_s = None if proven else run.clock.now_s()
        handed = run.plan.handed_on(pending.handed, found.places, handover.left)
        run.plan = replace(plan, pending=None, changed_s=since_s, handed=handed)
        if pending.revision is not None:
            run.plan = replace(run.plan, revision=pending.revision)
        run.folder.write_plan(run.plan)
        run.topology = topology
        part = run.here = here(topology, found.places, run.plan.site)
        run.progress.change(part)
        run.plane.change(part.unit_by_name)
        planned, revision = run.clusters.change(part, found.places), run.plan.revision
        attempts = {unit: run.drivers.attempt(unit) for unit in found.starts}
        run.running_controller().change(planned, revision, anew, budgeting_for(part), attempts)
        run.feed.change(part)
        preparing, self._preparing, self._ready, self._found = self._preparing, None, False, None
        for notice in notices:
            run.plane.note(notice)
        said = f"revision {revision}: {'; '.join(map(str, found.changes))} ({pending.reason})"
        said += f"; drained in {took_s:.1f} s" if found.drains else ""
        if preparing is not None:
            # Until what is there was heard of.
            run.running_controller().room.end(run.clock.now_s() + SEEN_S)
            said += f"; {preparing.said()}" if preparing.said() else ""
        run.plane.note(said)
        return True
