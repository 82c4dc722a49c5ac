"""Policy `utilisation`: two thresholds on the filtered signal, single-step and multi-step."""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, StartInstance, StopInstance
from penstock.fleet.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.monitoring.measurements import InstanceReading, Measurement, Signal
from penstock.policies.utilisation import Utilisation
from penstock.policies.view import ScalingEvent, View
from penstock.topology.model import HostFlavour, Operator, Site, Source, Topology, Unit

FLAVOUR = HostFlavour("large", 64.0, 65536, Decimal(1))


def a_view(
    cpu: float | None = 0.6,
    memory: float | None = 0.3,
    *,
    running: int = 4,
    starting: int = 0,
    std: float | None = None,
    trusted: bool = True,
    most: int = 32,
    history: tuple[ScalingEvent, ...] = (),
) -> View:
    topology = Topology(
        "test",
        (Source("source"),),
        (Operator("work", ("source",)),),
        units=(Unit("work", ("work",), max_instances=most),),
        sites=(Site("site", flavours=(FLAVOUR,)),),
    )
    states = [InstanceState.RUNNING] * running + [InstanceState.STARTING] * starting
    instances = [Instance(f"work-{i}", "work", "host", state) for i, state in enumerate(states)]
    readings = tuple(InstanceReading(f"work-{i}", cpu, memory) for i in range(running))
    signal = Signal(Measurement("work", 100.0, 0.5, readings=readings), cpu, memory, std, None, trusted)
    host = Host("host", "site", FLAVOUR, HostState.UP)
    return View(
        100.0,
        topology,
        Deployment.of([host], instances),
        windows={"work": (signal,)},
        history=history,
        units=("work",),
        next_instance=50,
    )


def change(policy: Utilisation, view: View) -> int:
    """Instances started less instances stopped."""
    actions = policy.decide(view)
    assert all(action.reason for action in actions)
    return sum(isinstance(a, StartInstance) for a in actions) - sum(
        isinstance(a, StopInstance) for a in actions
    )


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        (0.60, 0.60, 0),
        (0.81, 0.10, 1),  # any metric above
        (0.10, 0.81, 1),
        (0.80, 0.80, 0),  # at the threshold is not above it
        (0.44, 0.44, -1),  # all metrics below
        (0.44, 0.46, 0),
        (0.46, 0.10, 0),
        (0.44, None, -1),  # what is not read has no say
        (None, None, 0),
    ],
)
def test_single_step_goes_up_if_any_is_above_and_down_if_all_are_below(
    cpu: float | None, memory: float | None, expected: int
) -> None:
    assert change(Utilisation(step="single"), a_view(cpu, memory)) == expected


@pytest.mark.parametrize(
    ("cpu", "running", "starting", "expected"),
    [
        (0.70, 4, 0, 0),
        (0.90, 4, 0, 2),  # 3.6 instances' work at 0.625: 5.76, so 6
        (3.30, 1, 0, 5),  # an estimate above 1 says how many are missing
        (3.30, 1, 5, 0),  # and those that start are not ordered twice
        (3.30, 1, 2, 3),
        (0.20, 10, 0, -6),  # 2 instances' work at 0.625: 3.2, so 4
        (0.01, 3, 0, -2),  # never below the last one
        (0.60, 4, 4, -4),  # once the starting ones serve, it will be 0.30: 2.4 instances' work, 4 do
    ],
)
def test_multi_step_moves_to_where_the_work_meets_the_target(
    cpu: float, running: int, starting: int, expected: int
) -> None:
    assert change(Utilisation(), a_view(cpu, 0.0, running=running, starting=starting)) == expected


@pytest.mark.parametrize(
    ("cpu", "inset", "expected"),
    [
        (1.35, 0.5, 5),  # work 5.4 at 0.625: 9 instances
        (1.35, 0.3, 4),  # at 0.80 − 0.3 · 0.35 = 0.695: 8
        (1.35, 0.0, 3),  # at 0.80: 7
        (0.2, 0.5, -2),  # work 0.8 at 0.625: 2 instances
        (0.3, 0.0, -1),  # work 1.2 at 0.45: 3
    ],
)
def test_the_inset_says_how_far_into_the_band_a_move_goes(cpu: float, inset: float, expected: int) -> None:
    assert change(Utilisation(inset_ratio=inset), a_view(cpu, 0.1)) == expected


def test_a_move_is_only_as_large_as_is_certain() -> None:
    # Work of 5.6 is 9 instances at 0.625; of 5.6 − 4 · 0.2 it is 8.
    assert change(Utilisation(certainty_sigma=1.0), a_view(1.4, 0.1, std=0.2)) == 4


def test_multi_step_shrinks_no_further_than_every_metric_allows() -> None:
    assert change(Utilisation(), a_view(0.10, 0.40, running=10)) == -3  # 4 instances' worth at 0.625: 7


def test_without_anticipation_the_thresholds_are_held_against_those_that_run() -> None:
    view = a_view(0.60, running=4, starting=4)
    assert change(Utilisation(anticipate=False), view) == 0
    assert change(Utilisation(anticipate=False), a_view(0.90, running=4, starting=1)) == 1


def test_an_uncertain_estimate_has_to_be_further_beyond_the_threshold() -> None:
    sure = Utilisation(certainty_sigma=2.0)
    assert change(sure, a_view(0.85, std=0.03)) == 0
    assert change(sure, a_view(0.85, std=0.01)) > 0
    assert change(sure, a_view(0.42, std=0.02)) == 0
    assert change(sure, a_view(0.42, std=0.01)) < 0


def test_it_holds_on_what_is_not_trusted_or_not_there() -> None:
    assert change(Utilisation(), a_view(3.0, trusted=False)) == 0
    view = a_view()
    empty = View(view.now_s, view.topology, view.deployment, units=("work",))
    assert Utilisation().decide(empty) == (Hold("work", "no measurement yet"),)


def test_it_keeps_to_the_bound() -> None:
    assert change(Utilisation(), a_view(5.0, running=4, most=6)) == 2
    assert change(Utilisation(step="single"), a_view(0.9, running=6, most=6)) == 0


def test_it_waits_before_it_goes_the_other_way() -> None:
    grown = (ScalingEvent(95.0, "StartInstance", "work", "work-3"),)
    assert change(Utilisation(settle_s=10.0), a_view(0.2, history=grown)) == 0
    assert change(Utilisation(settle_s=4.0), a_view(0.2, history=grown)) < 0
    assert change(Utilisation(settle_s=10.0), a_view(0.9, history=grown)) > 0


def test_the_newest_instances_go_first() -> None:
    actions = Utilisation(step="single").decide(a_view(0.2))
    assert [a.instance for a in actions if isinstance(a, StopInstance)] == ["work-3"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"down_ratio": 0.9}, "down_ratio < up_ratio"),
        ({"step": "twice"}, "single, multi"),
        ({"target_ratio": 0.9}, "between 0.45 and 0.8"),
        ({"inset_ratio": 1.5}, "inset_ratio from 0 to 1"),
        ({"certainty_sigma": -1.0}, "certainty_sigma"),
    ],
)
def test_wrong_parameters_are_told(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Utilisation(**wrong)  # type: ignore[arg-type]
