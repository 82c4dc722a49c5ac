import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Hold, LeaseHost, ReleaseHost, StartInstance, StopInstance
from penstock.policies.pesp import Pesp, PespProblem, solve, used_ratio
from penstock.policies.view import ScalingEvent
from tests.policies.views import NOW_S, a_signal, a_topology, a_view


def milp_solution(problem: PespProblem) -> tuple[int, int, list[int]]:
    """The linked problem of paper 003 with a solver: u, d, and p of every possible node.

    Variables: p_1..p_|P| (running nodes first), u, d, low_cpu, low_queue. The big N is the least that
    exceeds every queue in question: 1e6 would leak through the solver's tolerance. Strict inequalities
    on integers are relaxed by 0.5, on ratios by 1e-6.
    """
    running, most = len(problem.used_ratios), problem.most
    big = float(problem.most + max(problem.waiting, problem.q_max, problem.q_min) + 10)
    u, d, low_cpu, low_queue = most, most + 1, most + 2, most + 3
    size = most + 4
    cost = np.zeros(size)
    cost[:most] = 1.0  # (1), first term
    cost[:running] += problem.used_ratios  # second term, with (6)
    cost[u] = cost[d] = big
    rows, lows, highs = [], [], []

    def require(coefficients: dict[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        row = np.zeros(size)
        for index, value in coefficients.items():
            row[index] = value
        rows.append(row)
        lows.append(low)
        highs.append(high)

    cpu = problem.cpu_ratio
    if cpu is not None:
        # Strict inequalities: loads here are whole per cents, so half a per cent makes them strict. Less
        # than the solver's tolerance of 1e-6 would leak through it, as ± 0.5 does not for queues.
        require({u: 1.0}, low=cpu - problem.cpu_max_ratio + 0.005)  # (2): cpu < CPU_max + u
        require({low_cpu: 1.0}, low=problem.cpu_min_ratio - cpu + 0.005)  # (4): cpu > CPU_min - low_cpu
    require({u: big}, low=problem.waiting - problem.q_max + 0.5)  # (3): q < Q_max + u N
    require({low_queue: big}, low=problem.q_min - problem.waiting + 0.5)  # (5): q > Q_min - low_queue N
    if cpu is not None:
        require({d: 1.0, low_cpu: -1.0, low_queue: -1.0}, low=-1.0)  # d where both are low
    # Linked: sum p = clip(|P_U| + u - d, least, |P|), and running nodes are not swapped for fresh ones.
    grows = 1.0 if running < problem.most else 0.0
    shrinks = 1.0 if running > problem.least else 0.0
    everyone = dict.fromkeys(range(most), 1.0)
    require({**everyone, u: -grows, d: shrinks}, low=running, high=running)
    require({**dict.fromkeys(range(running), 1.0), d: shrinks}, low=running)
    result = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), np.array(lows), np.array(highs)),
        bounds=Bounds(0, 1),
        integrality=np.ones(size),
    )
    assert result.success, result.message
    x = np.round(result.x).astype(int)
    return int(x[u]), int(x[d]), x[:most].tolist()


problems = st.builds(
    PespProblem,
    st.integers(0, 300),
    st.one_of(st.none(), st.integers(0, 100).map(lambda c: c / 100)),
    st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True).map(
        lambda u: tuple(r / 100 for r in u)
    ),
    least=st.just(1),
    most=st.integers(6, 8),
)


@given(problems)
@settings(max_examples=80, deadline=None)
def test_the_closed_form_equals_the_solver(problem):
    up, down, nodes = milp_solution(problem)
    solution = solve(problem)
    running = len(problem.used_ratios)
    assert (int(solution.up), int(solution.down), solution.nodes) == (up, down, sum(nodes))
    gone = [index for index in range(running) if nodes[index] == 0]
    assert gone == ([] if solution.removed is None else [solution.removed])


@pytest.mark.parametrize(
    ("waiting", "cpu", "expected"),
    [
        (149, 0.5, 0),
        (150, 0.5, 1),  # (3) is strict
        (0, 0.9, 1),  # (2) is strict
        (0, 0.89, 0),
        (5, 0.1, -1),
        (6, 0.1, 0),  # a short queue alone or a low CPU alone removes nothing
        (5, 0.11, 0),
        (0, None, 0),  # CPU not known: never down
        (200, None, 1),
    ],
)
def test_thresholds(waiting, cpu, expected):
    assert solve(PespProblem(waiting, cpu, (0.1, 0.8, 0.3))).nodes == 3 + expected


def test_the_node_with_the_least_paid_time_left_goes():
    assert solve(PespProblem(0, 0.0, (0.1, 0.8, 0.3))).removed == 1
    assert used_ratio(5400.0, 3600.0) == 0.5


def test_the_last_node_stays_and_the_bound_holds():
    assert solve(PespProblem(0, 0.0, (0.5,))).nodes == 1
    assert solve(PespProblem(999, 1.0, (0.5, 0.6), most=2)).nodes == 2


def test_up_leases_a_host_and_names_its_numbers():
    view = a_view(on={"h1": ["a"] * 4}, signals={"a": [a_signal(waiting=170, cpu_ratio=0.95)]})
    lease, start = Pesp().decide(view)
    assert isinstance(lease, LeaseHost)
    assert isinstance(start, StartInstance)
    assert start.reason == "up: 170 waiting (5 to 150), CPU 95% (10% to 90%)"


def test_down_stops_the_instance_on_the_host_whose_lease_ends_first():
    idle = {"a": [a_signal(waiting=0, cpu_ratio=0.05)]}
    view = a_view(
        on={"h1": ["a"], "h2": ["a"], "h3": ["a"]},
        signals=idle,
        remaining_s={"h1": 3000.0, "h2": 60.0, "h3": 900.0},
    )
    (stop,) = Pesp().decide(view)
    assert isinstance(stop, StopInstance)
    assert stop.instance == "a-2"
    assert stop.reason.endswith("98% of its billing time unit used")


def test_an_empty_host_is_released_after_the_grace_period():
    def released(seconds_ago):
        view = a_view(
            on={"h1": ["a"], "h2": []},
            signals={"a": [a_signal()]},
            history=(ScalingEvent(NOW_S - seconds_ago, "StopInstance", "a", "a-9"),),
        )
        return [action.host for action in Pesp(grace_s=30).decide(view) if isinstance(action, ReleaseHost)]

    assert released(29) == []
    assert released(30) == ["h2"]


def test_each_unit_is_decided_on_its_own():
    topology = a_topology(units=("a", "b", "c"))
    view = a_view(
        topology,
        on={"h1": ["a", "b", "c"], "h2": ["b"]},
        signals={"a": [a_signal(waiting=500)], "b": [a_signal("b", cpu_ratio=0.01)]},
    )
    actions = Pesp().decide(view)
    assert [type(action) for action in actions] == [StartInstance, StopInstance, Hold]


def test_thresholds_that_cross_are_refused():
    with pytest.raises(ConfigurationError):
        Pesp(q_min=200)
