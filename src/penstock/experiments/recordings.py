"""The recorded series that some experiments play: which they are, and where they are looked for.

They were recorded and published by others and are not part of the package. A user puts the files into a
folder and names it; an experiment without one of them says so in its summary and runs the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.report.figures import Figure

VARIABLE = "PENSTOCK_DATA"
"""The environment variable that names the folder where no option does."""
CHECKOUT = Path(__file__).resolve().parents[3]
"""The repository, where the package runs from one; developers keep the series beside it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded series: its file, and what a user needs to know to get it or to make one like it."""

    file: str
    what: str
    columns: str
    origin: str
    """Who published it, and under which licence."""


def _walk(number: int) -> Recording:
    return Recording(
        f"visp_random_walk_{number}.csv",
        f"random-walk arrival pattern {number} of paper 000's evaluation, one row a minute, of which the "
        "first 120 are played; one level is two machines",
        '"minute,level" with a header',
        "numbers published with visp-streaming/dataProvider, Apache-2.0",
    )


WALK_1, WALK_2 = _walk(1), _walk(2)
TAXIS = Recording(
    "beijing_taxi_gps.csv",
    "one day of positions of 53 taxis in Beijing, 75,000 rows",
    '"row,taxi,timestamp,latitude,longitude,speed,bearing" without a header, timestamps such as '
    "2009-01-06T05:15:07",
    "the sample of GMAP/DSPBench, MIT",
)
CLICKS = Recording(
    "ads_clicks_1s.csv",
    "the rate of an advertising click stream, one row a second for 18 hours, up to 30,000 clicks a second",
    '"timestamp|value" with a header, timestamps in seconds since 1970',
    "published with dos-group/demeter, Apache-2.0",
)


MESSAGES = Recording(
    "taxi_messages_5min.csv",
    "messages of taxis over three weeks, one row for five minutes",
    '"date,messages" with a header',
    "published with dos-group/load-prediction-dsp, MIT",
)


@dataclass(frozen=True, slots=True)
class Recordings:
    """The one folder in which recorded series are looked for; None where there is no such folder."""

    folder: Path | None = None

    def find(self, recording: Recording) -> Path | None:
        """The file of a series; None where it is absent."""
        path = None if self.folder is None else self.folder / recording.file
        return path if path is not None and path.is_file() else None

    def absent(self, recording: Recording) -> str:
        """A sentence for a series that was not found: where it was looked for, and what it is."""
        if self.folder is None:
            where = f"no folder was named (--data, or the variable {VARIABLE})"
        else:
            where = f"it is not in {self.folder}"
        return (
            f"{recording.file} is absent: {where}. It is {recording.what}. Columns: {recording.columns}. "
            f"Source: {recording.origin}."
        )


def find_recordings(given: Path | None = None) -> Recordings:
    """The folder a user named; else the one the environment names; else the one beside a checkout.

    Only one folder is looked into: a series must not come from a place the user did not think of.
    """
    named = os.environ.get(VARIABLE)
    for folder, by in ((given, "--data"), (Path(named) if named else None, VARIABLE)):
        if folder is not None:
            if not folder.is_dir():
                raise ConfigurationError(f"expected a folder of recorded series as {by}, got {str(folder)!r}")
            return Recordings(folder)
    beside = CHECKOUT.parent / "shared" / "data"
    in_checkout = (CHECKOUT / "pyproject.toml").is_file()
    return Recordings(beside if in_checkout and beside.is_dir() else None)


def left_out(instead: Mapping[Recording, str]) -> list[Figure]:
    """For the summary: each series that was absent, and what was done instead."""
    return [Figure(f"left out: {recording.file}", text) for recording, text in instead.items()]
