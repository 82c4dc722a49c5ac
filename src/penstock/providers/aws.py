"""The provider `aws`: EC2 instances, over boto3 (the extra `aws`).

Credentials, endpoints and proxies are found by boto3's own chain: environment, profile, instance role. None
is read or written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar, TypeVar

from penstock.errors import (
    ConfigurationError,
    NoCapacityError,
    NotFoundError,
    ProviderError,
    QuotaError,
    ThrottledError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_api import FLAVOUR, HOST, OWNER, SITE, Machine, MachineState, Order
from penstock.providers.cloud_records import LIVING
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

NOTICE_S = 120.0
"""A spot instance that is marked for termination is taken away so much later."""
CONNECT_S, ANSWER_S = 5, 30

_T = TypeVar("_T")

_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.ENDING,
    "terminated": MachineState.GONE,
    "stopping": MachineState.BROKEN,
    "stopped": MachineState.BROKEN,
}

_KINDS: tuple[tuple[type[ProviderError], str], ...] = (
    (ThrottledError, r"RequestLimitExceeded|.*Throttl.*|TooManyRequests.*|SlowDown"),
    (NoCapacityError, r"Insufficient.*|SpotMaxPriceTooLow|Unsupported"),
    (QuotaError, r".*LimitExceeded|MaxSpotInstanceCountExceeded|PendingVerification"),
    (
        UnauthorisedError,
        r"UnauthorizedOperation|AuthFailure|InvalidClientTokenId|SignatureDoesNotMatch|OptInRequired|Blocked"
        r"|ExpiredToken|RequestExpired|AccessDenied.*|MissingAuthenticationToken",
    ),
    (NotFoundError, r"Invalid\w+\.(?:NotFound|Malformed|Unavailable)|InvalidInstanceType"),
)
"""EC2's words, and what they mean to us; the first that fits."""


@dataclass(frozen=True, slots=True)
class AwsParameters:
    """EC2 instances. A flavour's name, or its `type`, is an instance type."""

    region: str
    """Such as `eu-west-1`."""
    image: str
    """The machine image, such as `ami-0abc…`: a Linux with bash, iproute2 and Python."""
    name: ClassVar[str] = "aws"
    subnet: str | None = None
    """Where instances are put; by default the account's own."""
    security_groups: tuple[str, ...] = ()
    """Their ids; hosts, drivers and the master have to reach each other."""
    key_name: str | None = None
    """A key pair to log in with."""
    instance_profile: str | None = None
    """The role of the instances, by name."""
    python: str | None = None
    """The Python of the image; by default it is where this one is, and made where it is missing."""


class AwsApi:
    """EC2. Implements `Api`."""

    def __init__(self, site: Site, parameters: AwsParameters, owner: str) -> None:
        """ConfigurationError where boto3 is not installed."""
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise ConfigurationError(
                f"site {site.name}: the provider aws needs boto3; install `penstock[aws]`"
            ) from error
        self._site = site
        self._how = parameters
        self._owner = owner
        # Tries and pauses are the provider's: a call is one call.
        once = Config(retries={"total_max_attempts": 1}, connect_timeout=CONNECT_S, read_timeout=ANSWER_S)
        self._ec2: Any = self.said(
            lambda: boto3.session.Session(region_name=parameters.region).client("ec2", config=once)
        )

    def create(self, order: Order) -> None:
        """Run an instance, tagged from its first moment on."""
        how = self._how
        tags = [{"Key": key, "Value": value} for key, value in {"Name": order.host, **order.tags}.items()]
        wanted: dict[str, Any] = {
            "ImageId": how.image,
            "InstanceType": order.flavour.machine_type,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": order.token,
            "UserData": order.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required"},
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
        }
        if how.subnet is not None:
            wanted["SubnetId"] = how.subnet
        if how.security_groups:
            wanted["SecurityGroupIds"] = list(how.security_groups)
        if how.key_name is not None:
            wanted["KeyName"] = how.key_name
        if how.instance_profile is not None:
            wanted["IamInstanceProfile"] = {"Name": how.instance_profile}
        if order.flavour.spot:
            wanted["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
            }
        self.said(lambda: self._ec2.run_instances(**wanted))

    def machines(self) -> Sequence[Machine]:
        """Every instance with the owner's and the site's tag."""
        ours = [
            {"Name": f"tag:{OWNER}", "Values": [self._owner]},
            {"Name": f"tag:{SITE}", "Values": [self._site.name]},
        ]

        def listed() -> list[Any]:
            pages = self._ec2.get_paginator("describe_instances").paginate(Filters=ours)
            return [one for page in pages for group in page["Reservations"] for one in group["Instances"]]

        found = self.said(listed)
        taken = self._taken() if any(flavour.spot for flavour in self._site.flavours) else {}
        return [self._machine(instance, taken) for instance in found]

    def delete(self, machine: Machine) -> None:
        """Terminate an instance."""
        self.said(lambda: self._ec2.terminate_instances(InstanceIds=[machine.id]))

    def offerings(self) -> Sequence[Offering]:
        """Which of the site's flavours the region has; prices are the topology's own."""
        types = {flavour.name: flavour.machine_type for flavour in self._site.flavours}
        asked = [{"Name": "instance-type", "Values": sorted(set(types.values()))}]

        def listed() -> set[str]:
            pages = self._ec2.get_paginator("describe_instance_type_offerings").paginate(Filters=asked)
            return {one["InstanceType"] for page in pages for one in page["InstanceTypeOfferings"]}

        there = self.said(listed)
        return [
            Offering(name)
            if kind in there
            else Offering(name, available=False, why_not=f"{self._how.region} has no instance type {kind}")
            for name, kind in types.items()
        ]

    # --- inside -----------------------------------------------------------------------------------

    def _machine(self, instance: Mapping[str, Any], taken: Mapping[str, float]) -> Machine:
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
        state = _STATES.get(instance["State"]["Name"], MachineState.BROKEN)
        why = (instance.get("StateReason") or {}).get("Message")
        return Machine(
            instance["InstanceId"],
            tags.get(HOST, ""),
            tags.get(FLAVOUR, ""),
            state,
            instance.get("PrivateIpAddress"),
            created_s=instance["LaunchTime"].timestamp(),
            ended_s=_ended_s(instance.get("StateTransitionReason") or ""),
            problem=f"the cloud says: {why}" if why and state not in LIVING else None,
            taken_s=taken.get(instance["InstanceId"]),
        )

    def _taken(self) -> dict[str, float]:
        """Spot instances that were given notice, and when they are taken away."""
        marked = [{"Name": "status-code", "Values": ["marked-for-termination"]}]

        def listed() -> list[Any]:
            pages = self._ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=marked)
            return [one for page in pages for one in page["SpotInstanceRequests"]]

        return {
            one["InstanceId"]: one["Status"]["UpdateTime"].timestamp() + NOTICE_S
            for one in self.said(listed)
            if one.get("InstanceId")
        }

    @staticmethod
    def said(call: Callable[[], _T]) -> _T:
        """The answer of a call; its error in our words."""
        from botocore import exceptions

        try:
            return call()
        except exceptions.ClientError as error:
            raise _in_our_words(error.response) from error
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
            raise UnauthorisedError(f"no credentials for AWS were found: {error}") from error
        except (exceptions.ProfileNotFound, exceptions.NoRegionError) as error:
            raise ConfigurationError(str(error)) from error
        except exceptions.BotoCoreError as error:
            raise UnavailableError(str(error)) from error


def _in_our_words(answer: Mapping[str, Any]) -> ProviderError:
    code = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = f"{code}: {answer.get('Error', {}).get('Message', '')}"
    for kind, codes in _KINDS:
        if re.fullmatch(codes, code):
            return kind(text)
    return UnavailableError(text) if status >= 500 or status == 0 else ProviderError(text)


def _ended_s(reason: str) -> float | None:
    """When an instance ended, out of `User initiated (2026-11-17 03:12:00 GMT)`; None while it has not."""
    found = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", reason)
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()


def make(site: Site, parameters: AwsParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site; ConfigurationError where boto3 is missing or misconfigured."""
    return CloudProvider(site, AwsApi(site, parameters, surroundings.owner), surroundings)
