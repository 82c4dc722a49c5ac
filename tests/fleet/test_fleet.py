"""The fleet's own rules: binding, replacement before retirement, drain before release, loss and silence."""

from __future__ import annotations

from dataclasses import replace

from penstock.controller.releasing import late_drains
from penstock.fleet.actions import (
    Action,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.deployment import Host, HostState, InstanceState
from penstock.fleet.fleet import Fleet
from penstock.fleet.keeping import life_of, living_of
from penstock.fleet.limits import Limits
from penstock.fleet.ports import SeenInstance, UnitReport
from penstock.fleet.units import UNIT_TRANSITIONS, UnitLife, UnitState
from penstock.infrastructure.leases import Lease
from penstock.trying import Pauses
from tests.builders import a_flavour, a_site, a_topology

TOPOLOGY = a_topology(units=("a",), sites=[a_site(flavours=[a_flavour(cores=2.0)])], max_instances=8)
FLAVOUR = TOPOLOGY.sites[0].flavours[0]


class Ground:
    """What providers and the plane show, set by hand; executors have ids of their own, as Spark's have."""

    def __init__(self, *hosts: str, limits: Limits | None = None) -> None:
        self.fleet = Fleet(TOPOLOGY, limits)
        self.now_s = 0.0
        self.up = {name: self.host(name) for name in hosts}
        self.executors: dict[str, str] = {}
        """The host each executor is on, by id."""
        self.retiring: set[str] = set()
        self.application = "app-1"
        self.state = UnitState.RUNNING
        self.heard = True
        for name in hosts:
            self.do(LeaseHost(name, "c", "m", ""))
        self.look()

    @staticmethod
    def host(name: str) -> Host:
        address = f"10.0.0.{name[1:]}"
        return Host(name, "c", FLAVOUR, HostState.UP, 0.0, 0.0, address=address)

    def do(self, *actions: Action) -> None:
        assert [self.fleet.apply(action, self.now_s) for action in actions] == [None] * len(actions)
        self.orders = self.fleet.orders(self.now_s)

    def look(self, later_s: float = 1.0) -> list[str]:
        self.now_s += later_s
        shown = tuple(
            SeenInstance(
                name, InstanceState.RETIRING if name in self.retiring else InstanceState.RUNNING,
                f"10.0.0.{host[1:]}", self.now_s,
            )
            for name, host in self.executors.items()
        )  # fmt: skip
        reports = [UnitReport("a", self.now_s, self.state, self.application, shown)] if self.heard else []
        notices = self.fleet.observed({"c": tuple(self.up.values())}, reports, self.now_s)
        self.orders = self.fleet.orders(self.now_s)
        return notices

    def states(self) -> dict[str, tuple[str, str | None, str | None]]:
        found = self.fleet.deployment().instances.values()
        return {i.id: (i.state.value, i.external_id, i.host) for i in found}


def test_an_instance_is_bound_to_an_executor_on_the_host_it_was_meant_for() -> None:
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""), StartInstance("a-2", "a", "h2", ""))
    assert ground.fleet.wanted("a").target == 2
    ground.executors = {"0": "h2", "1": "h1"}
    ground.look()
    assert ground.states() == {"a-1": ("running", "1", "h1"), "a-2": ("running", "0", "h2")}


def test_where_the_plane_chose_another_host_the_book_has_the_real_one() -> None:
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h2"}
    ground.look()
    assert ground.states() == {"a-1": ("running", "0", "h2")}


def test_an_executor_nobody_asked_for_shall_go() -> None:
    ground = Ground("h1")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h1", "1": "h1"}
    ground.look()
    wanted = ground.fleet.wanted("a")
    assert (wanted.target, wanted.retire) == (1, ("1",))


def test_what_ran_before_the_first_look_is_taken_over() -> None:
    ground = Ground()
    ground.up = {"h1": ground.host("h1")}
    ground.fleet = Fleet(TOPOLOGY)
    ground.executors = {"7": "h1"}
    ground.look()
    assert ground.states() == {"a-found-7": ("running", "7", "h1")}


def test_a_migration_starts_the_replacement_first_and_the_host_goes_last() -> None:
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h1"}
    ground.look()
    ground.do(MigrateInstance("a-1", "a-2", "a", "h2", ""), ReleaseHost("h1", ""))
    assert ground.fleet.wanted("a").target == 2
    assert ground.fleet.wanted("a").retire == ()
    for _ in range(5):
        ground.look()
        assert ground.orders.delete == (), "the host stays while the replacement does not serve"
        assert [i.id for i in ground.fleet.deployment().of_unit("a")] == ["a-2"], "they count as one"
    ground.executors["1"] = "h2"
    ground.look()
    assert ground.states()["a-1"][0] == "retiring"
    assert (ground.fleet.wanted("a").target, ground.fleet.wanted("a").retire) == (1, ("0",))
    assert ground.orders.delete == (), "the host stays while something retires on it"
    del ground.executors["0"]
    ground.look()
    assert [host.id for host in ground.orders.delete] == ["h1"]
    assert ground.states() == {"a-2": ("running", "1", "h2")}
    assert ground.fleet.times.move_s == 7.0


def test_a_replacement_that_comes_up_on_the_host_that_goes_plugs_its_room_until_one_comes_up_elsewhere() -> (
    None
):
    """A plane that places by itself may choose the draining host again and again."""
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h1"}
    ground.look()
    ground.do(MigrateInstance("a-1", "a-2", "a", "h2", ""), ReleaseHost("h1", ""))
    ground.executors["1"] = "h1"
    ground.look()
    wanted = ground.fleet.wanted("a")
    assert (wanted.target, wanted.plugs, wanted.retire) == (3, 1, ()), "one more is asked for, and it stays"
    assert ground.states()["a-2"] == ("requested", None, "h2")
    ground.executors["2"] = "h2"
    ground.look()
    wanted = ground.fleet.wanted("a")
    assert (wanted.target, set(wanted.retire)) == (1, {"0", "1"})
    assert ground.states() == {"a-1": ("retiring", "0", "h1"), "a-2": ("running", "2", "h2")}
    del ground.executors["0"], ground.executors["1"]
    ground.look()
    assert [host.id for host in ground.orders.delete] == ["h1"]


def test_a_host_with_an_executor_that_is_nobodys_is_not_empty() -> None:
    ground = Ground("h1")
    ground.executors = {"0": "h1"}
    ground.do(StartInstance("a-1", "a", None, ""))
    ground.look()
    ground.executors["1"] = "h1"
    ground.look()
    ground.do(StopInstance("a-1", "a", ""), ReleaseHost("h1", ""))
    del ground.executors["0"]
    ground.look()
    assert ground.orders.delete == ()
    del ground.executors["1"]
    ground.look()
    assert [host.id for host in ground.orders.delete] == ["h1"]


def test_what_a_lost_host_held_goes_where_there_is_room_and_is_given_up_where_there_is_none() -> None:
    ground = Ground("h1", "h2")
    ground.do(*(StartInstance(f"a-{n}", "a", "h1" if n < 3 else "h2", "") for n in (1, 2, 3)))
    ground.executors = {"0": "h1", "1": "h1", "2": "h2"}
    ground.look()
    ground.up["h1"] = replace(ground.up["h1"], state=HostState.FAILED, problem="power cut")
    ground.executors = {"2": "h2"}
    notices = ground.look()
    assert "host h1 failed: power cut" in notices
    assert ground.states() == {"a-1": ("requested", None, "h2"), "a-3": ("running", "2", "h2")}
    assert "a-2 was lost with host h1: no room elsewhere" in notices


def test_what_does_not_serve_on_a_host_that_is_taken_away_is_not_waited_for() -> None:
    """Its executor leaves with the notice: the wish for it would keep the host until it is taken."""
    ground = Ground("h1", "h2", "h3")
    ground.do(*(StartInstance(f"a-{n}", "a", "h1", "") for n in (1, 2)), StartInstance("a-3", "a", "h2", ""))
    ground.executors = {"0": "h1", "1": "h1", "2": "h2"}
    ground.look()
    ground.up["h1"] = replace(ground.up["h1"], taken_s=130.0)
    ground.executors = {"2": "h2"}
    ground.look()
    assert ground.states()["a-1"] == ("requested", None, "h1")
    ground.do(MigrateInstance("a-1", "a-4", "a", "h3", ""), ReleaseHost("h1", "", asked=True))
    notices = ground.look()
    assert ground.states() == {
        "a-2": ("requested", None, "h2"),
        "a-3": ("running", "2", "h2"),
        "a-4": ("requested", None, "h3"),
    }
    assert notices == ["a-2 was lost with host h1; it is asked for on h2"]
    assert [host.id for host in ground.orders.delete] == ["h1"]


def test_nothing_is_put_on_a_host_that_is_taken_away() -> None:
    ground = Ground("h1", "h2")
    ground.up["h1"] = replace(ground.up["h1"], taken_s=130.0)
    ground.look()
    assert list(ground.fleet.deployment().room) == ["h2"]
    refused = ground.fleet.apply(StartInstance("a-1", "a", "h1", ""), ground.now_s)
    assert refused == "host h1 takes no instances: its provider takes it away"


def test_a_unit_that_is_not_heard_of_is_started_again_with_growing_pauses() -> None:
    ground = Ground(
        "h1", limits=Limits(unit_silent_s=30.0, unit_start_s=60.0, pauses=Pauses(longest_s=4.0, most=5))
    )
    ground.look()
    ground.heard = False
    for _ in range(30):
        assert ground.look() == []
    assert ground.fleet.silent_s("a", ground.now_s) == 30.0
    assert ground.look() == ["unit a went down (silent for 31 s); it is started again in 0.5 s"]
    ground.look()
    assert ground.orders.submit == ("a",)
    assert ground.fleet.units["a"].attempt == 2
    pauses, told = list[float](), list[str]()
    while not told:
        failures = ground.fleet.units["a"].failures
        told = ground.look()
        life = ground.fleet.units["a"]
        if life.failures > failures and life.next_start_s is not None:
            pauses.append(life.next_start_s - ground.now_s)
    assert pauses == [1.0, 2.0, 4.0, 4.0], "none of them is told by itself"
    assert told == [
        "unit a went down 6 times in a row (silent for 61 s); a person is asked: it is not started again "
        "until told so (penstock tell RUN restart a)"
    ]
    assert left_to_a_person(ground)


FEW = Limits(pauses=Pauses(most=3, held_s=60.0))


def left_to_a_person(ground: Ground) -> bool:
    """Whether nothing more is said of the unit, and nothing tried, for as long as one cares to look."""
    looked = [(ground.look(), ground.orders.submit) for _ in range(200)]
    return ground.fleet.units["a"].asks and all(seen == ([], ()) for seen in looked)


def died(ground: Ground, number: int, after_s: int = 2) -> list[str]:
    """What is told of a unit's application that runs for a while and dies, and of the start that follows."""
    ground.application, ground.state = f"app-{number}", UnitState.RUNNING
    told = [notice for _ in range(after_s) for notice in ground.look()]
    ground.state = UnitState.DOWN
    told += ground.look()
    ground.heard = False
    while not ground.orders.submit and not ground.fleet.units["a"].asks:
        told += ground.look()
    ground.heard = True
    return told


def test_a_unit_that_comes_up_and_dies_each_time_is_left_to_a_person() -> None:
    ground = Ground("h1", limits=FEW)
    assert died(ground, 1) == ["unit a went down (it ended); it is started again in 0.5 s"]
    assert died(ground, 2) == ["unit a runs as a new application: it was started again"]
    assert died(ground, 3) == []
    (asked,) = died(ground, 4)
    assert asked.startswith("unit a went down 4 times in a row (it ended); a person is asked")
    ground.heard = False
    assert left_to_a_person(ground)


def test_a_unit_that_ran_for_a_while_has_as_many_tries_as_ever() -> None:
    ground = Ground("h1", limits=FEW)
    for number in range(1, 10):
        died(ground, number, after_s=70)
        assert ground.fleet.units["a"].failures == 1
    assert not ground.fleet.units["a"].asks


def test_a_unit_for_which_a_person_was_asked_is_tried_again_when_told_so() -> None:
    ground = Ground("h1", limits=FEW)

    def fails() -> None:
        for number in range(1, 5):
            died(ground, number)
        assert ground.fleet.units["a"].asks
        ground.heard = False

    for tell in (
        lambda: ground.fleet.try_again(ground.now_s),
        lambda: ground.fleet.restart("a", 1, ground.now_s),
        lambda: ground.fleet.restore(tuple(ground.fleet.units.values()), ground.now_s),
    ):
        fails()
        ground.look()
        assert ground.orders.submit == ()
        tell()
        ground.look()
        assert ground.orders.submit == ("a",)
        assert ground.fleet.units["a"].failures == 0


def test_a_unit_that_cannot_even_be_submitted_is_left_to_a_person_and_told_once() -> None:
    ground = Ground("h1", limits=FEW)
    died(ground, 1, after_s=70)
    ground.heard = False
    told = []
    while not ground.fleet.units["a"].asks:
        if ground.orders.submit:
            ground.fleet.put_off("a", "there is no room", ground.now_s)
        told += ground.look()
    told += ground.look()
    assert [text.partition(";")[0] for text in told] == [
        "unit a went down 4 times in a row (there is no room)"
    ]


def test_time_in_which_nobody_listened_is_no_silence_of_a_unit() -> None:
    ground = Ground("h1", limits=Limits(unit_silent_s=30.0))
    ground.look()
    ground.heard = False

    assert ground.look(later_s=3600.0) == [], "the controller or the machine was frozen for an hour"
    told = [notice for _ in range(16) for notice in ground.look()]
    assert told == ["unit a went down (silent for 31 s); it is started again in 0.5 s"]


def test_a_host_and_an_instance_may_come_up_after_time_in_which_nobody_listened() -> None:
    ground = Ground("h1", limits=Limits(host_start_s=50.0, instance_start_s=20.0))
    ground.do(LeaseHost("h9", "c", "m", ""), StartInstance("a-1", "a", "h1", ""))
    ground.look()

    assert ground.look(later_s=3600.0) == [], "nothing could join a machine that was suspended"
    told = [notice for _ in range(60) for notice in ground.look()]
    assert "host h9 is given up: it did not join within 50 s" in told
    assert any("a-1 was not granted within 20 s" in notice for notice in told)


def test_a_host_that_never_comes_up_is_given_up_and_told() -> None:
    ground = Ground(limits=Limits(host_start_s=50.0))
    ground.do(LeaseHost("h9", "c", "m", ""), StartInstance("a-1", "a", "h9", ""))
    for _ in range(49):
        ground.look()
    assert ground.orders.create, "it is asked for until it is shown"
    assert "host h9 is given up: it did not join within 50 s" in [*ground.look(), *ground.look()]
    assert ground.fleet.deployment().hosts["h9"].state is HostState.FAILED
    assert ground.states() == {}


def test_an_instance_that_is_never_granted_is_told_of_once() -> None:
    ground = Ground("h1", limits=Limits(instance_start_s=20.0))
    ground.do(StartInstance("a-1", "a", "h1", ""))
    told = [notice for _ in range(60) for notice in ground.look()]
    assert len(told) == 1
    assert "a-1 was not granted within 20 s" in told[0]


def test_a_restarted_fleet_knows_what_the_one_before_knew() -> None:
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h1"}
    ground.look()
    ground.do(MigrateInstance("a-1", "a-2", "a", "h2", ""), ReleaseHost("h1", ""))
    written = [life_of(living, ground.now_s) for living in ground.fleet.taken_changes()]
    newest = {(life.what, life.name): life for life in written}
    again = Fleet(TOPOLOGY)
    found = [living_of(life, TOPOLOGY) for life in newest.values() if not life.over]
    again.restore([living for living in found if living is not None], ground.now_s)
    assert again.deployment().instances == ground.fleet.deployment().instances
    assert again.deployment().hosts == ground.fleet.deployment().hosts
    assert again.wanted("a") == ground.fleet.wanted("a")
    ground.fleet = again
    ground.executors["1"] = "h2"
    ground.look()
    assert ground.states()["a-1"][0] == "retiring", "the migration goes on"


# -- releases that run late -------------------------------------------------------------------------------


def a_draining_host(*, replaced: bool, asked: bool = False) -> tuple[Ground, dict[str, Lease]]:
    ground = Ground("h1", "h2")
    ground.do(StartInstance("a-1", "a", "h1", ""))
    ground.executors = {"0": "h1"}
    ground.look()
    ground.do(MigrateInstance("a-1", "a-2", "a", "h2", ""), ReleaseHost("h1", "", asked))
    if replaced:
        ground.executors["1"] = "h2"
    ground.look()
    return ground, {"h1": Lease("h1", "c", "m", 0.0, 100.0, FLAVOUR.price_per_btu)}


def test_a_release_whose_replacement_is_late_is_taken_back_and_prolonged_on_purpose() -> None:
    ground, leases = a_draining_host(replaced=False)
    assert late_drains(ground.fleet, leases, 69.0, 15.0) == ()
    (prolong,) = late_drains(ground.fleet, leases, 75.0, 15.0)
    assert isinstance(prolong, ProlongLease)
    assert prolong.reason == "kept h1: the replacement of a-1 does not serve yet and 25 s are paid"
    assert ground.fleet.deployment().hosts["h1"].state is HostState.UP
    assert ground.states() == {"a-1": ("running", "0", "h1")}, "and nothing was lost"


def test_a_release_that_a_person_asked_for_is_paid_on_and_not_taken_back() -> None:
    ground, leases = a_draining_host(replaced=False, asked=True)
    (prolong,) = late_drains(ground.fleet, leases, 75.0, 15.0)
    assert prolong.reason.startswith("paid on until it is empty, as was asked")
    assert ground.fleet.deployment().hosts["h1"].state is HostState.DRAINING


def test_what_retires_too_slowly_is_ended_before_the_next_unit_is_paid() -> None:
    ground, leases = a_draining_host(replaced=True)
    assert late_drains(ground.fleet, leases, 75.0, 15.0) == ()
    assert ground.fleet.wanted("a").kill == ("0",)
    assert late_drains(ground.fleet, leases, 90.0, 15.0) == ()
    assert [host.id for host in ground.fleet.orders(90.0).delete] == ["h1"], "with what is still on it"


def test_haste_is_not_worth_it_where_time_is_paid_by_the_second() -> None:
    ground, leases = a_draining_host(replaced=False)
    by_the_second = {"h1": replace(leases["h1"], btu_s=1.0, units=75)}
    assert late_drains(ground.fleet, by_the_second, 74.9, 15.0) == ()
    assert ground.fleet.deployment().hosts["h1"].state is HostState.DRAINING


def test_every_state_of_a_unit_is_in_its_table_and_it_moves_along_it() -> None:
    assert set(UNIT_TRANSITIONS) == set(UnitState)
    life = UnitLife("a").moved(UnitState.SUBMITTED).moved(UnitState.RUNNING).moved(UnitState.DOWN)
    assert life.moved(UnitState.SUBMITTED).state is UnitState.SUBMITTED


def test_whoever_lost_its_room_to_another_unit_is_meant_for_the_room_that_one_left() -> None:
    small = a_flavour(cores=1.0)
    topology = a_topology(units=("a", "b"), sites=[a_site(flavours=[small])])
    fleet = Fleet(topology)
    hosts = [replace(Ground.host(name), flavour=small) for name in ("h1", "h2")]
    for action in (
        LeaseHost("h1", "c", "m", ""), LeaseHost("h2", "c", "m", ""),
        StartInstance("a-1", "a", "h1", ""), StartInstance("b-2", "b", "h2", ""),
    ):  # fmt: skip
        assert fleet.apply(action, 0.0) is None
    # Spark places by itself: the second unit was quicker and took the first one's host.
    shown = (SeenInstance("0", InstanceState.RUNNING, "10.0.0.1", 5.0),)
    fleet.observed({"c": hosts}, [UnitReport("b", 5.0, UnitState.RUNNING, "app-b", shown)], 5.0)
    found = fleet.deployment()
    assert {i.id: i.host for i in found.instances.values()} == {"a-1": "h2", "b-2": "h1"}
    assert all(room.cores == 0 for room in found.room.values()), "no host looks empty, none is too full"
