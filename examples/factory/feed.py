"""The factory in real time: which machines live, and when their sensors report.

Paper 000 lets a machine's minute pass every 480 ms; the rate factor stretches that, so that two cores can
follow. The load goes up and down by steps: the number of machines that are switched on. A machine that is
switched off stops its own clock and goes on with its life when it is switched on again. The minutes of all
machines are spread evenly over time. What was emitted is the truth a run is compared with.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from factory.display import draw_display
from factory.machines import (
    AVAILABILITY_PER_MINUTE,
    MINUTE_S,
    TEMPERATURE_PER_MINUTE,
    Minute,
    live,
    machine_name,
)
from penstock.channels.batches import last_batch, publish
from penstock.channels.feeder import FINISHED

PAPER_MINUTE_S = 0.48
"""Wall-clock seconds a machine's minute takes in the evaluation of paper 000."""

PER_MINUTE = {
    "availability": AVAILABILITY_PER_MINUTE,
    "production": 1,
    "temperature": TEMPERATURE_PER_MINUTE,
}
"""Records of a machine's minute from S1, S2 and S3, by the names the topology gives them."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much the factory emits: machines by step, and how fast their minutes pass."""

    machines: tuple[int, ...] = (2, 4, 6, 4, 2)
    """Machines switched on in each step."""
    hold_s: float = 36.0
    """How long a step lasts."""
    rate_factor: float = 0.1
    """The paper's rates times this."""
    seed: int = 1
    smudged_ratio: float = 0.0
    """Share of pictures nobody can read."""

    @property
    def duration_s(self) -> float:
        """How long the steps last together."""
        return self.hold_s * len(self.machines)

    @property
    def minute_s(self) -> float:
        """Wall-clock seconds a machine's minute takes."""
        return PAPER_MINUTE_S / self.rate_factor

    def machines_at(self, at_s: float) -> int:
        """Machines switched on at an instant after the start; the last step stays."""
        step = min(int(at_s / self.hold_s), len(self.machines) - 1)
        return self.machines[step]


@dataclass(frozen=True, slots=True)
class Emission:
    """One minute of one machine, the instant it is reported, and whether its picture is smudged."""

    at_s: float
    """Seconds after the start of the feed."""
    minute: Minute
    smudged: bool = False


def emissions(load: Load, duration_s: float | None = None) -> Iterator[Emission]:
    """What the factory emits, in order of time, for the load's duration or a given one.

    The n machines of a step take turns: each reports once a minute, a minute / n after the one before.
    """
    until_s = load.duration_s if duration_s is None else duration_s
    lives: dict[int, Iterator[Minute]] = {}
    at_s, turn = 0.0, 0
    while at_s < until_s:
        present = load.machines_at(at_s)
        number = turn % present + 1
        life = lives.setdefault(number, live(machine_name(number), load.seed))
        minute = next(life)
        yield Emission(at_s, minute, _is_smudged(minute, load))
        turn += 1
        at_s += load.minute_s / present


def _is_smudged(minute: Minute, load: Load) -> bool:
    """Whether this picture is smudged: by its own number alone, evenly over the pictures."""
    place = (minute.number * 0.6180339887498949 + sum(minute.machine.encode()) * 0.7548776662466927) % 1.0
    return place < load.smudged_ratio


def records_of(emission: Emission, started_s: float) -> Mapping[str, list[dict[str, Any]]]:
    """The sixteen records of an emission by source, as they enter the stream."""
    minute = emission.minute
    machine = minute.machine
    source_time = datetime.fromtimestamp(started_s + emission.at_s, UTC).isoformat(timespec="microseconds")

    def record(letter: str, sequence: int, time_s: int, **columns: Any) -> dict[str, Any]:
        return {
            "record_id": f"{machine}-{letter}{sequence:06d}",
            "source_time": source_time,
            "machine": machine,
            "sequence": sequence,
            "time_s": time_s,
            **columns,
        }

    begin_s = minute.end_s - MINUTE_S
    return {
        "availability": [
            record(
                "a",
                minute.availability_sequence(place),
                begin_s + (place + 1) * MINUTE_S // AVAILABILITY_PER_MINUTE,
                status=status,
            )
            for place, status in enumerate(minute.statuses)
        ],
        "production": [
            record(
                "p",
                minute.number,
                minute.end_s,
                cycle_s=MINUTE_S,
                picture=draw_display(machine, minute.number, minute.cycle, smudged=emission.smudged),
            )
        ],
        "temperature": [
            record(
                "t",
                minute.temperature_sequence(place),
                begin_s + (place + 1) * MINUTE_S // TEMPERATURE_PER_MINUTE,
                temperature=temperature,
            )
            for place, temperature in enumerate(minute.temperatures)
        ],
    }


def json_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON; bytes become base64, which Spark reads back as binary."""
    return json.dumps(
        {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in record.items()
        }
    )


def write_feed(
    load: Load,
    streams: Mapping[str, Sequence[Path]],
    started_s: float,
    duration_s: float | None = None,
    *,
    now_s: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Write emissions at their instants into each source's folders, one batch each; how many there were.

    Started again with the same `started_s`, it goes on after the last batch that is there.
    """
    done = {source: min(last_batch(folder) for folder in folders) for source, folders in streams.items()}
    number = -1
    for number, emission in enumerate(emissions(load, duration_s)):
        while not stopped() and (delay_s := started_s + emission.at_s - now_s()) > 0:
            wait(min(delay_s, 0.5))
        if stopped():
            number -= 1
            break
        if all(number <= last for last in done.values()):
            continue
        for source, records in records_of(emission, started_s).items():
            written = streams[source][0].parent / f"_writing-{number:09d}"
            written.mkdir(parents=True, exist_ok=True)
            file = written / "records.json"
            file.write_text("\n".join(json_line(record) for record in records) + "\n")
            publish(written, [file], len(records), streams[source], number)
    for source, per_minute in PER_MINUTE.items():
        finished = streams[source][0].parent / FINISHED
        finished.parent.mkdir(parents=True, exist_ok=True)
        finished.write_text(json.dumps({"records": (number + 1) * per_minute, "emissions": number + 1}))
    return number + 1


def truth(load: Load, count: int) -> list[Minute]:
    """The minutes of the first so many emissions: what the sensors knew."""
    return [emission.minute for emission in islice(emissions(load, float("inf")), count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed as a process: `python -m factory.feed SPECIFICATION.json`."""
    parser = argparse.ArgumentParser(description="Write what the factory's sensors report, in real time.")
    parser.add_argument("specification", type=Path)
    given = json.loads(parser.parse_args(arguments).specification.read_text())
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: ended.append(received))
    load = Load(**{**given["load"], "machines": tuple(given["load"]["machines"])})
    streams = {source: [Path(folder) for folder in folders] for source, folders in given["streams"].items()}
    write_feed(load, streams, given["started_s"], given["duration_s"], stopped=lambda: bool(ended))
    return 0


if __name__ == "__main__":
    sys.exit(main())
