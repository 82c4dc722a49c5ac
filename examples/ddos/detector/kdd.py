"""The same method on labelled real connections: NSL-KDD, where somebody has its files.

The model is trained on the normal connections of the first file and judges those of the second. Features are
the numbers of each connection, large ones as logarithms, and whether it uses each of the three protocols.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from detector.model import Judged, judged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LABEL = 41
"""The column of the attack's name; the one after it says how hard it is to tell."""
WORDS = {1: "protocol", 2: "service", 3: "flag"}
PROTOCOLS = ("tcp", "udp", "icmp")
FLAGS = ("SF", "S0", "REJ", "RSTR", "RSTO", "SH")
LOADS = frozenset(
    [
        "neptune",
        "smurf",
        "back",
        "teardrop",
        "pod",
        "land",
        "apache2",
        "udpstorm",
        "processtable",
        "mailbomb",
        "worm",
    ]
)
"""Attacks that deny a service."""
QUIET = 0.95
"""Share of normal connections below each limit. Half of the test's connections are attacks, where one false
alarm in twenty can be borne."""
SCANS = frozenset(["satan", "ipsweep", "nmap", "portsweep", "mscan", "saint"])


def connections(file: Path) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Features, their names, and labels of the connections in a file."""
    table = pd.read_csv(file, header=None)
    numbers = [column for column in range(LABEL) if column not in WORDS]
    values = table[numbers].to_numpy(dtype=np.float64)
    values = np.where(values > 1, 1 + np.log(np.maximum(values, 1)), values)
    words = [(1, protocol) for protocol in PROTOCOLS] + [(3, flag) for flag in FLAGS]
    chosen = [(table[column] == word).to_numpy(dtype=np.float64) for column, word in words]
    names = [f"feature {column + 1}" for column in numbers] + [word for _, word in words]
    return np.column_stack([values, *chosen]), names, [str(label) for label in table[LABEL]]


def evaluated(spark: SparkSession, training: Path, test: Path) -> list[str]:
    """What the method reaches on NSL-KDD, in words: all attacks, and those that deny a service."""
    return [f"{what}: {found}" for what, found in judgements(spark, training, test).items()]


def judgements(spark: SparkSession, training: Path, test: Path) -> dict[str, Judged]:
    """Precision and recall on the second file of a model of the normal connections in the first."""
    from pyspark.ml.linalg import Vectors

    from detector.batch import train

    values, names, labels = connections(training)
    normal = values[np.array(labels) == "normal"]
    rows = spark.createDataFrame([(Vectors.dense(row),) for row in normal], ["features"])
    model = train(rows, names, QUIET)
    values, _, labels = connections(test)
    q, t2, _ = model.scores(values)
    alerts = model.worst(q, t2) > 1.0
    attacks = np.array([label != "normal" for label in labels])
    found = {"all attacks": judged(alerts, attacks)}
    for what, known in (("denial of service", LOADS), ("scans", SCANS)):
        one = np.array([label in known for label in labels]) | ~attacks
        found[what] = judged(alerts[one], attacks[one])
    return found
