"""Subscriptions to a run's streams and its look-ups, over HTTP."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from penstock.api.answers import Answer, By, Mistakes, Reason, Strict, over_the_api
from penstock.api.places import Place
from penstock.channels import lookups
from penstock.channels.subscriptions import LARGEST, MOST_RECORDS, Standing, Terms
from penstock.runs import commands, streams

ROUTER = APIRouter(prefix="/api/v1")
_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
Operator = Annotated[str, Path(max_length=200)]
Subscriber = Annotated[str, Path(pattern=_PATTERN)]
LookupName = Annotated[str, Path(pattern=_PATTERN)]
MOST_READ = 10_000


class Stream(Answer):
    """A stream somebody can subscribe to, and who does."""

    operator: str
    """The operator whose records they are."""
    subscribers: list[dict[str, Any]]
    """Each as a [SubscriberState](#subscriberstate)."""
    ended: bool = Field(
        False, description="Whether no more comes, by a change: its subscribers read what waits, and leave."
    )


class Asked(Strict):
    """What a subscriber asks for."""

    most_records: int = Field(MOST_RECORDS, ge=1, le=LARGEST, description="So many records wait at most.")


class SubscriberState(Answer):
    """How far a subscriber is."""

    name: str
    """What it calls itself."""
    most_records: int
    """So many records wait for it at most."""
    waiting: int
    """Records that wait for it."""
    dropped: int
    """Records that were dropped because more waited."""
    topic: str | None = Field(None, description="Where the records are, if on Kafka; told when subscribing.")
    group: str | None = Field(None, description="The consumer group to read them as.")
    also_at: list[str] = Field(
        default=[],
        description="Other sites whose runs read the stream: subscribe there by the same name as well, or "
        "they delete what this subscriber has not read. Told when subscribing.",
    )


class Batch(Answer):
    """The next records of a subscriber; the same come again until their number is said to be done."""

    records: list[dict[str, Any]]
    """Each with its columns."""
    number: int
    """To be said when they are dealt with; -1 where there are none."""


class Done(Strict):
    """Everything up to a batch is dealt with."""

    number: int = Field(ge=-1, le=2**62)
    """The number of the batch."""


class NewValue(Strict):
    """The next version of a look-up."""

    value: Any
    """Anything that JSON can say."""
    reason: Reason = ""
    """Why; it goes on record."""
    by: By = ""
    """Who asks; it goes on record."""


class LookupVersion(Answer):
    """A look-up as it is now."""

    name: str
    """Its name."""
    version: int
    """Counts up with each new value."""
    value: Any = None
    """What functions get."""


@ROUTER.get("/runs/{name}/streams")
def list_streams(place: Place) -> list[Stream]:
    """The streams of a run, and who outside of it subscribes to them."""
    return [
        Stream(
            operator=each.operator,
            subscribers=[_told(standing).model_dump() for standing in each.standings],
            ended=each.ended,
        )
        for each in streams.listed(place)
    ]


@ROUTER.put("/runs/{name}/streams/{operator}/subscribers/{subscriber}")
def subscribe(place: Place, operator: Operator, subscriber: Subscriber, asked: Asked) -> SubscriberState:
    """Subscribe to an operator's records from its next batch on; again it changes what was asked for."""
    found = streams.subscribed(place, operator, Terms(subscriber, asked.most_records))
    at = streams.topic_of(place, operator, subscriber)
    state = _told(found.standing())
    if at is None:
        return state
    also_at = streams.other_sites(place, operator)
    return state.model_copy(update={"topic": at.topic, "group": at.group, "also_at": also_at})


@ROUTER.get("/runs/{name}/streams/{operator}/subscribers/{subscriber}")
def read(
    place: Place,
    operator: Operator,
    subscriber: Subscriber,
    most: Annotated[int, Query(ge=1, le=MOST_READ)] = 1000,
) -> Batch:
    """The next records, in whole batches."""
    records, number = streams.readable(place, operator, subscriber).read(most)
    # Times and bytes as text.
    return Batch(records=json.loads(json.dumps(records, default=str)), number=number)


@ROUTER.post("/runs/{name}/streams/{operator}/subscribers/{subscriber}/done")
def done(place: Place, operator: Operator, subscriber: Subscriber, told: Done) -> SubscriberState:
    """What was read up to a number is dealt with, and deleted."""
    found = streams.readable(place, operator, subscriber)
    found.done(told.number)
    return _told(found.standing())


@ROUTER.delete("/runs/{name}/streams/{operator}/subscribers/{subscriber}")
def leave(place: Place, operator: Operator, subscriber: Subscriber) -> Mistakes:
    """Leave a stream; what waited is gone."""
    streams.left(place, operator, subscriber)
    return Mistakes(errors=[])


@ROUTER.get("/runs/{name}/lookups")
def list_lookups(place: Place) -> list[LookupVersion]:
    """The look-ups of a run, without their values."""
    root = place.units.lookups
    return [LookupVersion(name=n, version=lookups.current(root, n)[0]) for n in lookups.names(root)]


@ROUTER.get("/runs/{name}/lookups/{lookup}")
def look_up(place: Place, lookup: LookupName) -> LookupVersion:
    """A look-up's newest version."""
    version, value = lookups.current(place.units.lookups, lookup)
    return LookupVersion(name=lookup, version=version, value=value)


@ROUTER.put("/runs/{name}/lookups/{lookup}")
def update(place: Place, lookup: LookupName, wish: NewValue) -> LookupVersion:
    """Give a look-up its next version, while units use it."""
    by = over_the_api(wish.by)
    made = lookups.update(place.units.lookups, lookup, wish.value, by, wish.reason)
    said = f"version {made.version}" + (f": {wish.reason}" if wish.reason else "")
    commands.put(place.commands, commands.Command("lookup", said, lookup, by))
    return LookupVersion(name=lookup, version=made.version, value=wish.value)


def _told(standing: Standing) -> SubscriberState:
    return SubscriberState(
        name=standing.name,
        most_records=standing.most_records,
        waiting=standing.waiting,
        dropped=standing.dropped,
        topic=None,
        group=None,
    )
