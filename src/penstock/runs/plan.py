"""What a run shall do, as it is kept in the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import ConfigurationError
from penstock.spark.unit.specification import topology_text
from penstock.topology.file import parse_topology
from penstock.topology.model import Topology

DRAIN_S = 60.0
"""After the sources' end: longest time without any progress until records in flight are given up."""


@dataclass(frozen=True, slots=True)
class Handed:
    """That a unit has left the run of a site for that of another; written by the one it left, once it had."""

    number: int
    """How many times it has gone so: of two notes the one with the higher number holds."""
    site: str
    """The site whose run has it from now on."""
    begin: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Where it goes on reading streams on a server, by the operator that writes them and by partition."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that is under way: units finish what there is to read before it is made."""

    reason: str = ""
    topology: str = ""
    """The text of the version to come."""
    refusal: str = ""
    """How the answer begins where it is given up."""
    give_up_state: bool = False
    """Whether state that cannot be kept may be lost."""
    rehearse: bool = False
    """Whether it is given up where its units cannot be tried on records that are there."""
    back: bool = False
    """Whether it takes back a version in which units failed."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The sites units go to by it, where somebody named one; the others stay where they are."""
    revision: int | None = None
    """The number of the version to come, where another site has given it one already."""
    handed: Mapping[str, Handed] = field(default_factory=dict)
    """What runs of other sites have said of units that have left them; of each the newest."""
    at_once: bool = False
    """Whether units leave without finishing what there is to read, for want of anything that could."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run shall do."""

    name: str
    topology: str
    """The text of its topology's file."""
    duration_s: float | None = None
    """How long sources run, from the moment every unit does; None means until told to stop."""
    drain_s: float = DRAIN_S
    feed: bool = True
    """Whether feeders write the generated sources; else somebody else does, and the run ends when told to."""
    code: str | None = None
    """The folder of the topology's functions."""
    bootstrap: str | None = None
    """A broker that runs already."""
    own_broker: bool = False
    """Whether the run has a broker of its own, and starts it again where it dies."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The user's own `spark.*` settings; they win."""
    journal: str | None = None
    """The URL of its journal; None where that is a file of its folder."""
    revision: int = 1
    """The version of the topology: counts up with each change while it runs."""
    revisions: Mapping[str, int] = field(default_factory=dict)
    """By unit, the version it must run at least, where a change made it start again."""
    before: str | None = None
    """The text of the version before this one."""
    changed_s: float | None = None
    """When this version was taken up, by the run's clock; None where it is not to be taken back by itself."""
    pending: Pending | None = None
    """The change that is under way."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The site every unit is at."""
    places_before: Mapping[str, str] = field(default_factory=dict)
    """The same in the version before this one."""
    site: str | None = None
    """The site whose units it runs, where every site has a run of its own; None means all units."""
    handed: Mapping[str, Handed] = field(default_factory=dict)
    """Of units that went between runs of several sites, the last time they did."""
    warm_from: str | None = None
    """An earlier run's folder or journal, which tells what the units' loads usually do."""

    @property
    def label(self) -> str:
        """What its processes are found by: its name, and its site where several have a run of this name."""
        return self.name if self.site is None else f"{self.name}.{self.site}"

    @property
    def journalled_as(self) -> str:
        """The run's name in its journal: runs of several sites may share one that is a database."""
        return self.name if self.journal is None else self.label

    @staticmethod
    def of(topology: Topology, name: str, **options: object) -> RunPlan:
        """The plan of a run of this topology."""
        return RunPlan(name, topology_text(topology), **options)  # type: ignore[arg-type]

    def read_topology(self) -> Topology:
        """The topology it is a run of."""
        return parse_topology(self.topology)

    def changed(
        self, topology: Topology, restarts: Iterable[str], places: Mapping[str, str] | None = None
    ) -> RunPlan:
        """The plan with the next version of the topology, in which these units start again.

        `places` are the sites of its units; without them all are where they were.
        """
        revision = self.revision + 1
        units = {unit: number for unit, number in self.revisions.items() if unit in topology.unit_by_name}
        return replace(
            self,
            topology=topology_text(topology),
            before=self.topology,
            places=dict(self.places if places is None else places),
            places_before=self.places,
            revision=revision,
            revisions={**units, **dict.fromkeys(restarts, revision)},
        )

    def handed_on(
        self,
        told: Mapping[str, Handed],
        places: Mapping[str, str],
        left: Mapping[str, Mapping[str, Mapping[str, int]]],
    ) -> dict[str, Handed]:
        """The notes there are once others have told theirs, and units have left this run for `places`."""
        found = {**self.handed, **told}
        for unit, begin in left.items():
            number = found[unit].number + 1 if unit in found else 1
            found[unit] = Handed(number, places[unit], begin)
        return found

    def going_on(self, earlier: RunPlan) -> RunPlan:
        """This plan for the run that was here before; ConfigurationError where its state would not fit."""
        if _regardless_of_start(self.topology) != _regardless_of_start(earlier.topology):
            raise ConfigurationError(
                f"the folder holds run {earlier.name} of another version of the topology; its checkpoints do "
                "not fit this one. Run the version it had, change it with `penstock apply` while it runs, or "
                "give the new one a folder of its own"
            )
        return replace(
            self,
            topology=earlier.topology,
            revision=earlier.revision,
            revisions=earlier.revisions,
            before=earlier.before,
            changed_s=earlier.changed_s,
            places=earlier.places,
            places_before=earlier.places_before,
            pending=earlier.pending,
            handed=earlier.handed,
        )


def _regardless_of_start(text: str) -> Topology:
    """A topology but for how many instances its units begin with: a warm start finds others every hour."""
    topology = parse_topology(text)
    units = tuple(replace(unit, initial_instances=unit.min_instances) for unit in topology.units)
    return replace(topology, units=units)
