"""Runs on the control host: puts the examples' records on the broker, each at its instant.

`python -m benchmarks.hosts.feeding FILE` with a JSON that says what, where to and how much; the number of
records of each topic is written beside it when all are there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.machine.files import written

ROOT = Path(__file__).parents[2]
TOPICS = {"shop": ("orders",), "factory": ("availability", "production", "temperature")}
"""What each example reads."""
PARTITIONS = 4
DONE = "fed.json"


def shop(given: Mapping[str, Any]) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Orders as the quickstart's source makes them: the instant, the topic and the record."""
    number, at_s = 0, 0.0
    for rate_per_s in given["levels_per_s"]:
        until_s = at_s + given["hold_s"]
        while at_s < until_s:
            yield at_s, "orders", {"number": number, "customer": f"customer-{number % 100}"}
            number += 1
            at_s += 1.0 / rate_per_s


def factory(given: Mapping[str, Any]) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """What the factory's sensors send."""
    sys.path.insert(0, str(ROOT / "examples"))
    feed = import_module("factory.feed")

    load = feed.Load(**{**given["load"], "machines": tuple(given["load"]["machines"])})
    for emission in feed.emissions(load):
        for source, records in feed.records_of(emission, given["started_s"]).items():
            for record in records:
                yield emission.at_s, source, json.loads(feed.json_line(record))


def pem(words: str) -> str:
    """A certificate with its lines, as Kafka's settings have it in one."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    lines = words.replace(begin, "").replace(end, "").split()
    return "\n".join([begin, *lines, end, ""])


def main() -> None:
    """Feed to the end."""
    kafka = import_module("kafka")
    admin_room = import_module("kafka.admin")

    file = Path(sys.argv[1])
    given = json.loads(file.read_text())
    given["started_s"] = time.time()
    trusted = file.parent / "broker.pem"
    trusted.write_text(pem(given["certificate"]))
    login = {
        "bootstrap_servers": given["bootstrap"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(trusted),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": given["user"],
        "sasl_plain_password": given["password"],
    }
    topics = TOPICS[given["what"]]
    if given.get("only_topics"):
        admin = kafka.KafkaAdminClient(**login)
        admin.create_topics([admin_room.NewTopic(name, PARTITIONS, 1) for name in topics])
        admin.close()
        return
    producer = kafka.KafkaProducer(**login, acks="all", enable_idempotence=True, linger_ms=20)
    counts = dict.fromkeys(topics, 0)
    made = {"shop": shop, "factory": factory}[given["what"]](given)
    for at_s, topic, record in made:
        delay_s = given["started_s"] + at_s - time.time()
        if delay_s > 0:
            time.sleep(delay_s)
        instant = datetime.fromtimestamp(given["started_s"] + at_s, timezone.utc)
        full = {
            "record_id": f"{topic}-{counts[topic]:09d}",
            "source_time": instant.isoformat(timespec="microseconds"),
            **record,
        }
        key = full.get("machine", full["record_id"])  # a machine's records stay in order
        producer.send(topic, json.dumps(full).encode(), key.encode())
        counts[topic] += 1
    producer.flush()
    producer.close()
    written(file.parent / DONE, json.dumps(counts))


if __name__ == "__main__":
    main()
