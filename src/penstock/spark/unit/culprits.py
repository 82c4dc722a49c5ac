"""Which records an operator throws on: found after the fact, so that good records cost nothing.

The failed micro-batch is read again from the channels and the operators are tried one by one. Then the
records *that came into the unit* are tried: alone, with all operators up to the failing one, parts that pass
dropped and parts that fail halved. So it does not matter how many operators and inputs there are, nor whether
an operator gives records ids of its own: what is blamed can be left out at the unit's door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.channels.envelope import PROBLEM, RECORD_ID, admitted_again, identified
from penstock.errors import PenstockError
from penstock.spark.gateway.errors import cause_of
from penstock.spark.unit.query import UnitQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_RECORDS = 100_000
"""Ids looked at in one micro-batch; a larger one is searched as far as this."""
MOST_FAULTS = 50
"""Failing records named in one search; the rest is found at the next failure."""
PROBES = 8
"""Records of a micro-batch that are tried alone before any is blamed; also how many in a row, of smaller
micro-batches, may all be to blame."""
OUTAGE_SHARE = 0.5
"""Where this share of the probes fails, or of a micro-batch larger than they are, it is an outage."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A record an operator throws on."""

    operator: str
    given: str
    """The unit's input the record came by."""
    record_id: str
    cause: str
    record: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"operator {self.operator} failed on record {self.record_id} of {self.given}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Culprits:
    """What a search found: records to blame, or that many fail at once, or neither."""

    faults: tuple[Fault, ...] = ()
    outage: str | None = None
    """How many fail at once, in words; None where it is not so."""
    whole: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The inputs of which every record is to blame, and how many those are."""


Choice = Callable[["DataFrame"], "DataFrame"]
"""Some of an input's records."""


def find_culprits(query: UnitQuery, batch_id: int) -> Culprits:
    """The records of a micro-batch that make an operator throw; none where trying again works."""
    inputs = query.read_batch(batch_id)
    if inputs is None:
        return Culprits()
    search = _Search(query, inputs)
    operator = search.failing_operator()
    nothing, everything = dict.fromkeys(inputs, _none), dict.fromkeys(inputs, _all)
    if operator is None or search.failure(operator, nothing) is not None:
        # Nothing fails now, or without any record too: no record is to blame.
        return Culprits()
    ids = {name: search.ids(name) for name in inputs}
    found: list[Fault] = []
    for name in inputs:
        outage = search.outage(operator, name, ids[name], nothing)
        if outage is not None:
            return Culprits(outage=outage)
        found += search.blamed(operator, name, ids[name], nothing, MOST_FAULTS - len(found))
    if not found:
        # No record fails by itself. It may together with those of another input: the smallest number of
        # records of one input is blamed without which all goes well.
        found = min(search.together(operator, ids, everything), key=len, default=[])
    total = sum(map(len, ids.values()))
    if total > PROBES and len(found) >= OUTAGE_SHARE * total:
        return Culprits(outage=f"{len(found)} of {total} records fail at once in operator {operator}")
    blamed = {(fault.given, fault.record_id) for fault in found}
    whole = {
        name: len(own) for name, own in ids.items() if own and all((name, each) in blamed for each in own)
    }
    return Culprits(tuple(found), whole=whole)


class _Search:
    """One search in one micro-batch."""

    def __init__(self, query: UnitQuery, inputs: Mapping[str, DataFrame]) -> None:
        self._query = query
        self._inputs = inputs
        self._leaving = {outlet.operator for outlet in query.plan.outlets}

    def ids(self, name: str) -> list[str]:
        """The ids of an input, sorted, each once."""
        rows = self._inputs[name].select(RECORD_ID).limit(MOST_RECORDS).collect()
        return sorted({row[0] for row in rows})

    def failing_operator(self) -> str | None:
        """The first operator that throws on the whole micro-batch; None where none does."""
        everything = dict.fromkeys(self._inputs, _all)
        for operator in self._query.plan.operators:
            if self.failure(operator.name, everything) is not None:
                return operator.name
        return None

    def failure(self, operator: str, chosen: Mapping[str, Choice]) -> str | None:
        """Why an operator fails on some records of the inputs, in one line; None where it does not."""
        frames = {name: admitted_again(chosen[name](given), name) for name, given in self._inputs.items()}
        try:
            for each in self._query.plan.operators:
                frames[each.name] = self._query.applied(each, frames)
                if each.name == operator:
                    break
            result = frames[operator]
            if operator in self._leaving:
                result = identified(result, operator)
            result.write.format("noop").mode("overwrite").save()
        except PenstockError:
            raise
        except Exception as error:
            return cause_of(error)
        return None

    def outage(
        self, operator: str, name: str, ids: Sequence[str], others: Mapping[str, Choice]
    ) -> str | None:
        """How many of some records fail alone, in words, where they are too many to be to blame."""
        if len(ids) <= PROBES:
            return None
        probes = ids[:: len(ids) // PROBES][:PROBES]
        failing = sum(
            self.failure(operator, {**others, name: _between([probe])}) is not None for probe in probes
        )
        if failing < OUTAGE_SHARE * len(probes):
            return None
        return f"{failing} of {len(probes)} records looked at fail at once in operator {operator}"

    def blamed(
        self, operator: str, name: str, ids: Sequence[str], others: Mapping[str, Choice], most: int
    ) -> list[Fault]:
        """The records of one input that fail alone, with these records of the others beside them."""

        def failure(part: Sequence[str]) -> str | None:
            return self.failure(operator, {**others, name: _between(part)})

        return [
            Fault(operator, name, record_id, cause, self._record(name, record_id))
            for record_id, cause in _halved(ids, failure, most)
        ]

    def together(
        self, operator: str, ids: Mapping[str, Sequence[str]], everything: Mapping[str, Choice]
    ) -> Iterator[list[Fault]]:
        """For each input, its records that fail in the company of all others', where that explains all."""
        for name in self._inputs:
            if self.failure(operator, {**everything, name: _none}) is not None:
                continue  # it fails without this input too
            found = self.blamed(operator, name, ids[name], everything, MOST_FAULTS)
            rest = _without([fault.record_id for fault in found])
            if found and self.failure(operator, {**everything, name: rest}) is None:
                yield found

    def _record(self, name: str, record_id: str) -> dict[str, object]:
        rows = _between([record_id])(self._inputs[name]).limit(1).collect()
        found = rows[0].asDict(recursive=True) if rows else {}
        return {column: value for column, value in found.items() if column != PROBLEM or value is not None}


def _halved(
    ids: Sequence[str], failure: Callable[[Sequence[str]], str | None], most: int
) -> Iterator[tuple[str, str]]:
    """Each of some ids that fails by itself, with the reason: at most so many."""
    whole = failure(ids) if ids and most > 0 else None
    parts = [] if whole is None else [(ids, whole)]
    found = 0
    while parts and found < most:
        part, why = parts.pop(0)
        if len(part) == 1:
            found += 1
            yield part[0], why
            continue
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            reason = failure(half)
            if reason is not None:
                parts.append((half, reason))


def _all(records: DataFrame) -> DataFrame:
    return records


def _none(records: DataFrame) -> DataFrame:
    return records.limit(0)


def _between(ids: Sequence[str]) -> Choice:
    """The records of neighbouring ids. A list of them would make the plan as long as itself."""
    from pyspark.sql import functions as sql

    return lambda records: records.filter(sql.col(RECORD_ID).between(ids[0], ids[-1]))


def _without(ids: Sequence[str]) -> Choice:
    from pyspark.sql import functions as sql

    return lambda records: records.filter(~sql.col(RECORD_ID).isin(list(ids)))
