"""What every provider over an API must do when the cloud is slow, lossy, full, strange or away.

Each cloud's own SDK talks to a fake of its cloud (`fakes/`). A further one joins by a line in CLOUDS.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from penstock.clock import WallClock
from penstock.errors import NoCapacityError, ProviderError, QuotaError, UnauthorisedError
from penstock.fleet.deployment import Host, HostState
from penstock.fleet.ports import PaidProvider, Used
from penstock.machine.processes import wait_until
from penstock.providers.aws import AwsApi, AwsParameters
from penstock.providers.azure import AzureApi, AzureParameters
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_api import Api, token_of
from penstock.providers.cloud_pauses import Pace
from penstock.providers.gcp import GcpApi, GcpParameters
from penstock.providers.joining import Joined, Membership
from penstock.providers.openstack import OpenStackApi, OpenStackParameters
from penstock.providers.surroundings import Surroundings
from penstock.providers.vmware import VmwareApi, VmwareParameters
from penstock.topology.model import Choice, HostFlavour, Site
from tests.providers.fakes.azure import SUBNET, SUBSCRIPTION, FakeAzure, FakeAzureMachines
from tests.providers.fakes.cloud import FakeCloud
from tests.providers.fakes.ec2 import CREDENTIALS, IMAGE, REGION, FrontOfMoto, MotoInstances, moto_server
from tests.providers.fakes.gcp import PROJECT, ZONE, FakeGoogle, FakeGoogleInstances
from tests.providers.fakes.openstack import FakeNova, FakeOpenStack
from tests.providers.fakes.simulated_api import SimulatedCloudApi
from tests.providers.fakes.wire import serving

OWNER = "run-7f3a"
FLAVOUR = HostFlavour("standard", 2.0, 4096, Decimal("0.12"))
SITE = Site("c", Choice("simulated"), flavours=(FLAVOUR,), btu_s=3600.0, minimum_s=60.0, increment_s=1.0)
QUICK = Pace(
    list_every_s=0.1,
    settle_s=0.3,
    grace_s=0.6,
    join_within_s=1.5,
    lost_after_s=0.5,
    shortest_pause_s=0.1,
    longest_pause_s=1.0,
    scarce_s=3.0,
    workers=8,
    beat_s=0.02,
)
LONGEST_S = 15.0


@dataclass
class Case:
    """A cloud and whoever leases from it."""

    cloud: FakeCloud
    api: Callable[[Site], Api]
    provided_by: str = "simulated"
    flavour: HostFlavour = FLAVOUR
    books: set[str] = field(default_factory=set)
    joins: bool = True
    leaving: set[str] = field(default_factory=set)
    """Addresses of machines that have told their cluster that they go."""
    refusals: tuple[str, ...] = ("quota", "capacity", "unauthorised", "throttled")
    """The kinds of no that this cloud has words for."""
    notices: bool = False
    """Whether this cloud's listing tells that a machine will be taken away."""
    used: list[Used] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    errors: dict[str, ProviderError] = field(default_factory=dict)
    was_scarce: bool = False
    pace: Pace = QUICK
    clock: WallClock | None = None
    coarse_s: float = 0.0
    """The cloud tells times rounded down to so much."""
    provider: CloudProvider = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        around = Surroundings(owner=OWNER, joined=self._joined, join_script=self._script, clock=self.clock)
        site = replace(SITE, provider=Choice(self.provided_by), flavours=(self.flavour,))
        self.provider = CloudProvider(site, self.api(site), around, self.pace)

    def _joined(self) -> Mapping[str, Joined]:
        if not self.joins:
            return {}
        running = [record for record in self.cloud.living() if self.cloud.running(record)]
        return {
            record.address: Joined(Membership.LEAVES if record.address in self.leaving else Membership.TAKES)
            for record in running
            if not record.broken
        }

    @staticmethod
    def _script(host: str, cores: int, memory_mib: int, notices: str | None = None) -> str:
        return f"#!/bin/sh\necho {host} {cores} {memory_mib}{f' {notices}' if notices else ''}\n"

    def want(self, *hosts: str) -> None:
        self.books.update(hosts)

    def give_back(self, *hosts: str) -> None:
        for host in hosts:
            self.provider.delete(host, time.time())
            self.books.discard(host)

    def look(self) -> dict[str, Host]:
        """One tick of a loop: see, say again what is wanted, tell the books."""
        now_s = time.time()
        shown = {host.id: host for host in self.provider.hosts(now_s) or ()}
        for host in sorted(self.books):
            if host not in shown or shown[host].state is HostState.REQUESTED:
                try:
                    self.provider.create(host, self.flavour, now_s)
                except ProviderError as error:
                    self.errors[host] = error
                    self.books.discard(host)
        self.was_scarce |= not all(o.available for o in self.provider.offerings(now_s))
        self.news += self.provider.keep(self.books, now_s)
        self.used += self.provider.used(now_s)
        return shown

    def until(
        self, wanted: Callable[[dict[str, Host]], object], most_s: float = LONGEST_S
    ) -> dict[str, Host]:
        assert wait_until(lambda: bool(wanted(self.look())), most_s), (self.look(), self.news, self.errors)
        return self.look()

    def all_up(self, *hosts: str) -> dict[str, Host]:
        return self.until(lambda shown: {n for n, h in shown.items() if h.state is HostState.UP} == {*hosts})

    def end(self) -> None:
        """Give everything back; nothing of ours may be left, and every machine was accounted for."""
        self.cloud.away = False
        self.cloud.failing_ratio = 0.0
        for host in tuple(self.books):
            self.give_back(host)
        assert self.provider.close(LONGEST_S) == ()
        self.used += self.provider.used(time.time())
        ours = [r for r in self.cloud.records.values() if r.tags["penstock-owner"] == OWNER]
        assert [r.host for r in ours if r.until_s is None] == [], "a machine was leaked"

    def whole_s(self) -> float:
        return sum(used.until_s - used.from_s for used in self.used)

    def billed_s(self) -> float:
        ours = [r for r in self.cloud.records.values() if r.tags["penstock-owner"] == OWNER]
        return sum((r.until_s or time.time()) - r.from_s for r in ours)


@contextlib.contextmanager
def simulated() -> Iterator[Case]:
    cloud = FakeCloud()
    yield Case(cloud, lambda site: SimulatedCloudApi(cloud, OWNER), notices=True)


@contextlib.contextmanager
def aws() -> Iterator[Case]:
    """boto3 against moto's EC2, with a front that makes calls go wrong."""
    with moto_server() as url:
        cloud = MotoInstances(url)
        with serving(FrontOfMoto(cloud)) as fake, environment({**CREDENTIALS, "AWS_ENDPOINT_URL": fake.url}):
            parameters = AwsParameters(region=REGION, image=IMAGE)
            # EC2 tells whole seconds.
            pace = replace(QUICK, join_within_s=QUICK.join_within_s + 2.0)
            small = replace(FLAVOUR, type="t3.small")
            yield Case(
                cloud,
                lambda site: AwsApi(site, parameters, OWNER),
                "aws",
                small,
                notices=True,
                pace=pace,
                coarse_s=1.0,
            )


@contextlib.contextmanager
def openstack() -> Iterator[Case]:
    """openstacksdk against a fake of OpenStack's HTTP API."""
    cloud = FakeNova()
    with serving(FakeOpenStack(cloud)) as fake:
        values = {
            "OS_AUTH_URL": f"{fake.url}/identity/v3",
            "OS_USERNAME": "tester",
            "OS_PASSWORD": "of-a-fake",
            "OS_PROJECT_NAME": "tests",
            "OS_USER_DOMAIN_NAME": "Default",
            "OS_PROJECT_DOMAIN_NAME": "Default",
            "OS_REGION_NAME": "here",
        }
        with environment(values):
            parameters = OpenStackParameters(image="debian-13", network="private")
            yield Case(cloud, lambda site: OpenStackApi(site, parameters, OWNER), "openstack")


@contextlib.contextmanager
def azure() -> Iterator[Case]:
    """Azure's SDK against a fake of its HTTP API."""
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    cloud = FakeAzureMachines()
    parameters = AzureParameters(
        region="westeurope",
        resource_group="tests",
        subnet=SUBNET,
        image="debian:debian-13:13:latest",
        key="ssh-ed25519 of-a-fake",
        subscription=SUBSCRIPTION,
    )
    with serving(FakeAzure(cloud)) as fake:
        options = {"base_url": fake.url, "authentication_policy": SansIOHTTPPolicy()}

        def api(site: Site) -> AzureApi:
            return AzureApi(site, parameters, OWNER, credential=object(), options=options)

        yield Case(cloud, api, "azure")


@contextlib.contextmanager
def gcp() -> Iterator[Case]:
    """Google's SDK against a fake of its HTTP API."""
    from google.auth.credentials import AnonymousCredentials

    cloud = FakeGoogleInstances()
    parameters = GcpParameters(zone=ZONE, image="family/debian-13", project=PROJECT)
    with serving(FakeGoogle(cloud)) as fake:

        def connect(kind: Any) -> Any:
            transport = kind.get_transport_class("rest")
            host = fake.url.removeprefix("http://")
            return kind(transport=transport(host=host, url_scheme="http", credentials=AnonymousCredentials()))

        yield Case(cloud, lambda site: GcpApi(site, parameters, OWNER, connect=connect), "gcp")


@contextlib.contextmanager
def vmware() -> Iterator[Case]:
    """pyvmomi against govmomi's simulator of a vCenter, with a proxy between that makes things go wrong."""
    from tests.providers.fakes.vcenter import (
        FOLDER,
        POOL,
        PROGRAM,
        TEMPLATE,
        FaultyVcenter,
        VcenterMachines,
        vcsim,
    )

    if not PROGRAM.is_file():
        pytest.skip("govmomi's simulator is not built: `make vcsim`, which needs Go")
    with vcsim() as url:
        cloud = VcenterMachines(url, OWNER)
        with serving(FaultyVcenter(cloud, url)) as fake:
            names = {"template": TEMPLATE, "folder": FOLDER, "pool": POOL}
            parameters = VmwareParameters(url=f"{fake.url}/sdk", **names)
            with environment({"GOVC_USERNAME": "user", "GOVC_PASSWORD": "pass"}):

                def api(site: Site) -> VmwareApi:
                    made = VmwareApi(site, parameters, OWNER)
                    made.half_made_s = 3.0
                    return made

                yield Case(cloud, api, "vmware", refusals=("capacity", "unauthorised"))


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for a while: where an SDK looks for its credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


CLOUDS: dict[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "simulated": simulated,
    "aws": aws,
    "openstack": openstack,
    "azure": azure,
    "gcp": gcp,
    "vmware": vmware,
}


SHORT = (
    "test_hosts_come_up_and_go_and_the_bill_is_the_clouds_record",
    "test_a_lost_answer_makes_no_second_machine",
    "test_a_refusal_is_told_by_its_kind_and_costs_nothing",
    "test_machines_of_somebody_else_are_not_touched_and_orphans_go_after_their_grace",
    "test_a_spot_flavour_is_bought_as_such_and_what_its_machine_learns_is_notice",
)
"""What every cloud goes through each time; the rest is the simulated one's alone, but for `make clouds`."""
IN_FULL = os.environ.get("PENSTOCK_CLOUDS") == "full"
AWAY_S = 60.0 if IN_FULL else 1.0
"""How long an API is away."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        everywhere = IN_FULL or metafunc.function.__name__ in SHORT
        metafunc.parametrize("case", [*CLOUDS] if everywhere else ["simulated"], indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with CLOUDS[request.param]() as found:
        try:
            yield found
        finally:
            found.provider.close(0.0)


def test_a_provider_for_money_is_one_by_its_port(case: Case) -> None:
    assert isinstance(case.provider, PaidProvider)


def test_hosts_come_up_and_go_and_the_bill_is_the_clouds_record(case: Case) -> None:
    assert case.provider.hosts(0.0) is None, "nothing is known before the cloud was listed"
    case.want("h1", "h2")
    shown = case.all_up("h1", "h2")
    assert len({host.address for host in shown.values()}) == 2
    (first,) = [r for r in case.cloud.records.values() if r.host == "h1"]
    assert first.user_data == "#!/bin/sh\necho h1 2 4096\n"
    assert case.look()["h1"] is case.look()["h1"], "the same object while nothing changes"
    case.give_back("h1")
    case.until(lambda shown: [*shown] == ["h2"])
    case.provider.create("h1", case.flavour, time.time())
    assert [*case.look()] == ["h2"], "a name is given once"
    case.end()
    assert sorted(used.host for used in case.used) == ["h1", "h2"]
    assert case.whole_s() == pytest.approx(case.billed_s(), abs=1.0)


def test_a_lost_answer_makes_no_second_machine(case: Case) -> None:
    case.cloud.faults += ["lost", "lost"]
    case.want("h1", "h2")
    case.all_up("h1", "h2")
    assert case.cloud.hosts() == ["h1", "h2"]
    case.end()
    assert len(case.cloud.records) == 2


def test_a_create_that_failed_before_is_said_again(case: Case) -> None:
    case.cloud.faults += ["before"]
    case.want("h1")
    case.all_up("h1")
    case.end()
    assert len(case.cloud.records) == 1


def test_a_doubled_machine_is_given_back_and_paid_for(case: Case) -> None:
    case.want("h1")
    case.all_up("h1")
    double = case.cloud.add_strange("h1", OWNER)
    case.until(lambda _: double.until_s is not None)
    assert case.look()["h1"].state is HostState.UP
    assert any("a second one of its name" in news for news in case.news)
    case.end()
    assert f"h1+{double.id}" in {used.host for used in case.used}


def test_the_same_host_has_the_same_token_and_another_flavour_another() -> None:
    assert token_of("o", "s", "h1", "small") == token_of("o", "s", "h1", "small")
    tokens = {token_of("o", "s", "h1", f) for f in ("small", "large")} | {token_of("p", "s", "h1", "small")}
    assert len(tokens) == 3
    assert all(len(token) == 36 for token in tokens)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("quota", QuotaError), ("capacity", NoCapacityError), ("unauthorised", UnauthorisedError)],
)
def test_a_refusal_is_told_by_its_kind_and_costs_nothing(case: Case, fault: str, kind: type[Any]) -> None:
    if fault not in case.refusals:
        pytest.skip(f"this cloud has no words for {fault}")
    case.cloud.faults += [fault]
    case.want("h1")
    shown = case.until(lambda shown: "h1" in case.errors or (shown and shown["h1"].problem))
    if "h1" in case.errors:
        assert isinstance(case.errors["h1"], kind)
        assert case.look() == {}
    else:
        # A cloud that says yes first: the host is shown as failed, and costs nothing.
        assert fault == "capacity"
        assert "No valid host" in str(shown["h1"].problem)
        case.give_back("h1")
        case.until(lambda shown: not shown)
    assert case.was_scarce is (kind is not UnauthorisedError)
    calls = case.cloud.calls
    if not all(o.available for o in case.provider.offerings(0.0)):
        with pytest.raises(kind):
            case.provider.create("h2", case.flavour, time.time())
        assert case.cloud.calls - calls < 8, "what cannot be had is not asked for again at once"
    case.until(lambda _: all(o.available for o in case.provider.offerings(0.0)))
    case.want("h3")
    case.all_up("h3")
    case.end()
    assert [used for used in case.used if used.host == "h1" and used.until_s > used.from_s] == []


def test_throttling_is_waited_out_with_growing_pauses(case: Case) -> None:
    if "throttled" not in case.refusals:
        pytest.skip("this cloud has no words for it")
    case.cloud.faults += ["throttled"] * 4
    case.want("h1")
    began_s = time.monotonic()
    case.all_up("h1")
    assert time.monotonic() - began_s > 0.75 * (0.1 + 0.2 + 0.4)
    case.end()
    assert len(case.cloud.records) == 1


def test_a_host_that_never_joins_is_given_up_in_time_and_deleted_at_once(case: Case) -> None:
    case.joins = False
    case.want("h1")
    began_s = time.monotonic()
    shown = case.until(lambda shown: shown and shown["h1"].state is HostState.FAILED)
    assert "did not join" in str(shown["h1"].problem)
    assert QUICK.join_within_s <= time.monotonic() - began_s < QUICK.join_within_s + 5.0
    case.until(lambda _: case.cloud.living() == [])
    case.give_back("h1")
    assert case.until(lambda shown: not shown) == {}
    case.end()
    assert [used.host for used in case.used] == ["h1"]


class Sleeper(WallClock):
    """The clock of a machine that can be suspended."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


def test_a_host_may_join_after_a_suspend_in_which_nobody_could_see_it(case: Case) -> None:
    case.provider.close(0.0)
    case.clock, case.joins = Sleeper(), False
    case.start()
    case.want("h1")
    case.until(lambda shown: shown and shown["h1"].address is not None)
    case.clock.slept_s = 3600.0
    case.joins = True
    case.all_up("h1")
    case.end()


def test_a_hosts_instants_are_those_of_the_runs_clock(case: Case) -> None:
    case.provider.close(0.0)
    # As after the machine's clock was set by an hour, and a controller came back to the run's clock.
    case.clock = WallClock(WallClock().anchor_s - 3600.0)
    case.start()
    case.want("h1")
    up_s = case.all_up("h1")["h1"].up_s
    assert up_s is not None
    assert abs(case.clock.now_s() - up_s) < LONGEST_S
    case.end()


def test_a_host_that_dies_while_it_starts_is_failed(case: Case) -> None:
    case.cloud.stuck.add("h1")
    case.want("h1")
    case.until(lambda _: case.cloud.hosts() == ["h1"])
    case.until(lambda shown: shown["h1"].state is HostState.STARTING)
    case.cloud.dies("h1")
    shown = case.until(lambda shown: shown["h1"].state is HostState.FAILED)
    assert "cloud" in str(shown["h1"].problem)
    assert any("h1" in news for news in case.news), "what is in the books and not in the cloud is told"
    case.end()
    assert case.whole_s() == pytest.approx(case.billed_s(), abs=1.5)


def test_a_host_that_breaks_is_failed_and_deleted(case: Case) -> None:
    case.want("h1")
    case.all_up("h1")
    case.cloud.breaks("h1")
    case.until(lambda shown: shown["h1"].state is HostState.FAILED)
    case.until(lambda _: case.cloud.living() == [])
    case.end()


def test_an_api_that_is_away_is_waited_for_and_what_was_seen_is_shown_with_its_age(case: Case) -> None:
    case.want("h1")
    case.all_up("h1")
    case.cloud.away = True
    case.want("h2")
    case.until(lambda _: case.provider.standing(0.0).problem)
    case.until(lambda _: case.provider.standing(0.0).age_s > AWAY_S, AWAY_S + LONGEST_S)
    assert case.look()["h1"].state is HostState.UP
    assert case.look()["h2"].state is HostState.REQUESTED
    before = case.cloud.calls
    time.sleep(0.5)
    assert case.cloud.calls - before <= 8, "it is not asked ever faster"
    case.cloud.away = False
    case.all_up("h1", "h2")
    assert any("answers again" in news for news in case.news)
    case.end()
    assert len(case.cloud.records) == 2


def test_machines_of_somebody_else_are_not_touched_and_orphans_go_after_their_grace(case: Case) -> None:
    case.want("h1")
    case.all_up("h1")
    strange = [case.cloud.add_strange("h9", "another-run"), case.cloud.add_strange("h8", OWNER, site="d")]
    began_s = time.time()
    orphan = case.cloud.add_strange("h7", OWNER)
    case.until(lambda _: orphan.until_s is not None)
    assert orphan.until_s is not None
    assert orphan.until_s - began_s >= QUICK.grace_s - 0.1 - case.coarse_s
    assert [*case.look()] == ["h1"]
    assert [record.until_s for record in strange] == [None, None]
    for record in strange:
        case.cloud.remove(record.id)
    case.end()
    assert f"h7+{orphan.id}" in {used.host for used in case.used}


def test_the_next_owner_of_the_run_goes_on_with_its_hosts(case: Case) -> None:
    case.want("h1", "h2")
    case.all_up("h1", "h2")
    case.provider.close(0.0)
    case.cloud.dies("h2")
    case.start()
    shown = case.until(lambda shown: shown.get("h1") and shown["h1"].state is HostState.UP)
    case.want("h3")
    case.until(lambda shown: "h3" in shown)
    assert shown["h1"].flavour == case.flavour
    assert sorted(r.host for r in case.cloud.records.values() if r.host == "h1") == ["h1"]
    case.end()


def test_a_host_given_back_before_its_machine_is_seen_leaves_none(case: Case) -> None:
    case.cloud.lag_s = 0.5
    case.cloud.faults += ["lost"]
    case.want("h1")
    case.until(lambda _: case.cloud.living())
    case.give_back("h1")
    case.until(lambda shown: not shown and not case.cloud.living())
    case.end()


def test_notice_of_an_interruption_is_shown(case: Case) -> None:
    if not case.notices:
        pytest.skip("this cloud tells it to the machine alone, or to nobody")
    case.provider.close(0.0)
    case.flavour = replace(case.flavour, spot=True)
    case.start()
    case.want("h1")
    case.all_up("h1")
    case.cloud.gives_notice("h1", 30.0)
    shown = case.until(lambda shown: shown["h1"].taken_s is not None)
    assert shown["h1"].taken_s == pytest.approx(time.time() + 30.0, abs=5.0)
    case.end()


SPOT_WORDS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "aws": lambda asked: asked["InstanceMarketOptions.MarketType"] == "spot",
    "azure": lambda asked: (
        (asked["properties"]["priority"], asked["properties"]["evictionPolicy"]) == ("Spot", "Delete")
    ),
    "gcp": lambda asked: asked["scheduling"]["provisioningModel"] == "SPOT",
}
"""How each cloud that sells spot machines is told so."""


def test_a_spot_flavour_is_bought_as_such_and_what_its_machine_learns_is_notice(case: Case) -> None:
    if case.provided_by not in (*SPOT_WORDS, "simulated"):
        pytest.skip("this cloud sells no spot machines")
    case.provider.close(0.0)
    case.flavour = replace(case.flavour, spot=True)
    case.start()
    case.want("h1")
    shown = case.all_up("h1")
    if case.provided_by in SPOT_WORDS:
        assert SPOT_WORDS[case.provided_by](case.cloud.asked)
    (record,) = case.cloud.records.values()
    assert record.user_data == f"#!/bin/sh\necho h1 2 4096 {case.provided_by}\n", "it looks for notice"
    assert shown["h1"].taken_s is None
    case.leaving.add(record.address)
    shown = case.until(lambda shown: shown["h1"].taken_s is not None)
    assert shown["h1"].taken_s == pytest.approx(time.time() + 30.0, abs=5.0)
    assert shown["h1"].state is HostState.UP, "until it is emptied and given back, or taken"
    case.end()


def test_much_goes_wrong_and_nothing_is_leaked_or_doubled(case: Case) -> None:
    case.cloud.failing_ratio, case.cloud.call_s, case.cloud.lag_s = 0.2, 0.02, 0.1
    names = [f"h{n}" for n in range(12)]
    case.want(*names)
    case.all_up(*names)
    case.until(lambda _: case.cloud.hosts() == sorted(names))
    case.give_back(*names[:6])
    case.until(lambda shown: sorted(shown) == sorted(names[6:]))
    case.end()
    assert case.whole_s() == pytest.approx(case.billed_s(), abs=1.0 * len(case.cloud.records))
