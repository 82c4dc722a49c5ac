"""A simulated cloud behind `Api`: it stands for a cloud and its SDK at once, with no wire between."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import (
    NoCapacityError,
    NotFoundError,
    ProviderError,
    QuotaError,
    ThrottledError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.providers.cloud_api import OWNER, SITE, Machine, MachineState, Order
from tests.providers.fakes.cloud import FakeCloud, FaultError

ERRORS: dict[str, type[ProviderError]] = {
    "lost": UnavailableError,
    "before": UnavailableError,
    "quota": QuotaError,
    "capacity": NoCapacityError,
    "throttled": ThrottledError,
    "unauthorised": UnauthorisedError,
}


class SimulatedCloudApi:
    """What one owner sees of a fake cloud at one site."""

    def __init__(self, cloud: FakeCloud, owner: str, site: str = "c") -> None:
        self.cloud, self.owner, self.site = cloud, owner, site

    def create(self, order: Order) -> None:
        try:
            with self.cloud.call():
                self.cloud.make(order.tags, order.token, order.user_data)
        except FaultError as fault:
            raise ERRORS[fault.kind](f"the cloud says: {fault.kind}") from fault

    def machines(self) -> Sequence[Machine]:
        try:
            with self.cloud.call():
                return [
                    Machine(
                        record.id,
                        record.host,
                        record.flavour,
                        MachineState.BROKEN
                        if record.broken
                        else MachineState.RUNNING
                        if self.cloud.running(record)
                        else MachineState.STARTING,
                        record.address,
                        record.from_s,
                        taken_s=record.taken_s,
                    )
                    for record in self.cloud.listed()
                    if (record.tags[OWNER], record.tags[SITE]) == (self.owner, self.site)
                ]
        except FaultError as fault:
            raise ERRORS[fault.kind](f"the cloud says: {fault.kind}") from fault

    def delete(self, machine: Machine) -> None:
        try:
            with self.cloud.call():
                if not self.cloud.remove(machine.id):
                    raise NotFoundError(f"there is no machine {machine.id}")
        except FaultError as fault:
            raise ERRORS[fault.kind](f"the cloud says: {fault.kind}") from fault

    def offerings(self) -> Sequence[Offering]:
        return ()
