"""The microscope and the scientists in real time: images at the pace of a workload, now and then a query.

Image k is due when the workload says so, of a region drawn from the seed; the region numbers its own images.
A query comes with every so-many-th image and asks for a random point of the tissue. All of it follows from
the load alone: a feed that is started again goes on where it was, and the batch that checks the answers
makes the same sequence again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cells.window import REGIONS, SIDE, point_at, region_at
from penstock.channels.batches import last_batch, publish
from penstock.channels.feeder import ALIVE, FINISHED, TICK_S
from penstock.topology.model import Choice
from penstock.workload.arrivals import ArrivalStream
from penstock.workload.registry import make_workload

IMAGES, QUERIES = "images", "queries"
"""The sources, by the names the topology gives them."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much the laboratory sends."""

    workload: str = "pyramid"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    duration_s: float = 180.0
    query_every: int = 100
    """Images to one query; the paper's 100."""
    seed: int = 1
    megapixels: float = 1.7
    album: int = 24
    """Different pictures there are."""
    lead_in_s: float = 0.0
    """How much of the duration only warms up: what is due in it is checked, and counted nowhere."""

    @property
    def choice(self) -> Choice:
        """The images' workload as a topology has it."""
        return Choice(self.workload, dict(self.parameters))


@dataclass(frozen=True, slots=True)
class Image:
    """One picture that was taken."""

    number: int
    """Counted from 0 over all regions."""
    at_s: float
    region: int
    sequence: int
    """Counted from 1 within the region."""
    picture: int
    """Which one of the album."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question about a point of the tissue."""

    number: int
    at_s: float
    x: int
    y: int
    sequence: int
    """Images of its region that came before it."""


def emissions(load: Load) -> Iterator[tuple[Image, Query | None]]:
    """Every image in order of time, and the query that comes with it, if any."""
    random = np.random.default_rng([load.seed, 7])
    arrivals = ArrivalStream(make_workload(load.choice))
    taken = [0] * REGIONS
    number, ticks = 0, 0
    while ticks * TICK_S < load.duration_s:
        ticks += 1
        for at_s in arrivals.until(min(ticks * TICK_S, load.duration_s)):
            region = int(random.integers(REGIONS))
            taken[region] += 1
            image = Image(number, float(at_s), region, taken[region], number % load.album)
            number += 1
            query = None
            if number % load.query_every == 0:
                x, y = (int(value) for value in random.integers(SIDE, size=2))
                asked = number // load.query_every - 1
                query = Query(asked, image.at_s, x, y, taken[region_at(x, y)])
            yield image, query


def image_record(image: Image, album: Path, started_s: float) -> dict[str, Any]:
    """An image as it enters the stream: where it is in the tissue, and its file."""
    return {
        "record_id": f"image-{image.number:08d}",
        "source_time": _instant(started_s + image.at_s),
        "region": image.region,
        "sequence": image.sequence,
        "picture": str(album / f"picture-{image.picture:04d}.tiff"),
    }


def query_record(query: Query, started_s: float) -> dict[str, Any]:
    """A query as it enters the stream."""
    return {
        "record_id": f"query-{query.number:08d}",
        "source_time": _instant(started_s + query.at_s),
        "region": region_at(query.x, query.y),
        "sequence": query.sequence,
        "x": query.x,
        "y": query.y,
        "point": point_at(query.x, query.y),
    }


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat(timespec="microseconds")


def by_tick(load: Load) -> Iterator[tuple[int, list[Image], list[Query]]]:
    """Emissions in the ticks they are written in, as (tick, images, queries); empty ticks are left out."""
    current, images, queries = 0, list[Image](), list[Query]()
    for image, query in emissions(load):
        tick = int(image.at_s / TICK_S)
        if tick != current:
            if images:
                yield current, images, queries
            current, images, queries = tick, [], []
        images.append(image)
        if query is not None:
            queries.append(query)
    if images:
        yield current, images, queries


def write_feed(
    load: Load,
    album: Path,
    streams: Mapping[str, Sequence[Path]],
    started_s: float,
    *,
    now_s: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, int]:
    """Write records at their instants into each source's folders; how many of each there were.

    Started again with the same `started_s`, it goes on after the last batch that is there.
    """
    done = {source: min(last_batch(folder) for folder in folders) for source, folders in streams.items()}
    counts = dict.fromkeys(streams, 0)
    complete = True
    for tick, images, queries in by_tick(load):
        while not stopped() and (delay_s := started_s + (tick + 1) * TICK_S - now_s()) > 0:
            _touch(streams)
            wait(min(delay_s, 0.5))
        if stopped():
            complete = False
            break
        records = {
            IMAGES: [image_record(image, album, started_s) for image in images],
            QUERIES: [query_record(query, started_s) for query in queries],
        }
        for source, found in records.items():
            if found and tick > done[source]:
                _publish(found, streams[source], tick)
            counts[source] += len(found)
    for source, count in counts.items():
        finished = streams[source][0].parent / FINISHED
        finished.parent.mkdir(parents=True, exist_ok=True)
        finished.write_text(json.dumps({"records": count, "complete": complete}))
    return counts


def _publish(records: Sequence[Mapping[str, Any]], folders: Sequence[Path], tick: int) -> None:
    written = folders[0].parent / f"_writing-{tick:09d}"
    written.mkdir(parents=True, exist_ok=True)
    file = written / "records.json"
    file.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    publish(written, [file], len(records), folders, tick)


def _touch(streams: Mapping[str, Sequence[Path]]) -> None:
    for folders in streams.values():
        folders[0].parent.mkdir(parents=True, exist_ok=True)
        (folders[0].parent / ALIVE).touch()


def truth(load: Load, images: int) -> tuple[list[Image], list[Query]]:
    """The first so many images, and the queries that came with them."""
    found = list(islice(emissions(load), images))
    return [image for image, _ in found], [query for _, query in found if query is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed as a process: `python -m cells.feed SPECIFICATION.json`."""
    parser = argparse.ArgumentParser(description="Write what a laboratory sends, in real time.")
    parser.add_argument("specification", type=Path)
    given = json.loads(parser.parse_args(arguments).specification.read_text())
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: ended.append(received))
    streams = {source: [Path(folder) for folder in folders] for source, folders in given["streams"].items()}
    load = Load(**given["load"])
    write_feed(load, Path(given["album"]), streams, given["started_s"], stopped=lambda: bool(ended))
    return 0


if __name__ == "__main__":
    sys.exit(main())
