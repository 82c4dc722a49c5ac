"""What else is asked of a run that is changed: mistakes, somebody who listens from outside, look-ups."""

from __future__ import annotations

import json
import threading

from benchmarks.changing import Changed
from benchmarks.kinds import FIRST, operator
from penstock.report.figures import Figure
from penstock.topology.file import dump_topology


def mistakes(run: Changed) -> list[Figure]:
    """No-op, invalid and simultaneous applications."""
    revision, attempts = run.revision(), run.attempts()
    path, text = f"/runs/{run.name}/apply", dump_topology(FIRST)
    status, answer = run.service.ask(path, {"topology": text})
    noop = (
        status == 200 and not answer["changes"] and (run.revision(), run.attempts()) == (revision, attempts)
    )
    wrong = text.replace("provider: local", "provider: pigeon").replace("policy: fixed", "policy: astrology")
    status, answer = run.service.ask(path, {"topology": wrong})
    listed = len(answer.get("errors", []))
    invalid = status == 422 and listed >= 2 and run.revision() == revision
    body = {"topology": dump_topology(operator(FIRST, "work", function="work:broken"))}
    status, answer = run.service.ask(path, body)
    told = "; ".join(answer.get("errors", [])) or str(answer)
    stopped = status == 409 and "nobody can do this" in told and run.attempts() == attempts
    answers: list[int] = []

    def one(slo_s: float) -> None:
        body = {"topology": dump_topology(operator(FIRST, "work", slo_s=slo_s)), "revision": revision}
        answers.append(run.service.ask(path, body)[0])

    both = [threading.Thread(target=one, args=(slo_s,)) for slo_s in (3.0, 4.0)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    won = sorted(answers) == [200, 409] and run.revision() == revision + 1
    return [
        Figure("an equal version changes nothing", "nothing" if noop else str(answer), "nothing", holds=noop),
        Figure("an invalid version: mistakes listed, nothing changed", float(listed), ">= 2", holds=invalid),
        Figure(
            "a function that throws: found out beside the one that runs, nobody was started again",
            "so" if stopped else told[:200],
            "so",
            holds=stopped,
        ),
        Figure("two apply at once", " and ".join(map(str, sorted(answers))), "200 and 409", holds=won),
    ]


def outsiders(run: Changed) -> list[Figure]:
    """Somebody subscribes by the API and listens by command; a look-up gets versions both ways."""
    place, service, ask, base = run.place, run.service, run.service.ask, f"/runs/{run.name}"
    office = f"{base}/streams/read/subscribers/office"
    before = run.attempts()
    status, _ = ask(office, {"most_records": 5000}, "PUT")
    run.wait(lambda: ask(office)[1]["number"] >= 0, "records came to the subscriber")
    first = ask(office)[1]
    again = ask(office)[1]["records"][: len(first["records"])] == first["records"]
    ask(f"{office}/done", {"number": first["number"]})
    heard = service.penstock("listen", service.seen(place.root), "read", "office").splitlines()
    ids = [r["record_id"] for r in first["records"]] + [json.loads(line)["record_id"] for line in heard]
    numbers = sorted(int(name.rpartition("-")[2]) for name in ids)
    in_a_row = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    left, _ = ask(office, None, "DELETE")
    gone = ask(office)[0]
    right = (status, left, gone, again, in_a_row) == (200, 200, 409, True, True)
    told = f"{len(first['records'])} by the API, {len(heard)} by command, each once, in a row"
    ask(f"{base}/lookups/limit", {"value": 10**11, "reason": "the API"}, "PUT")
    file = place.root / "limit.json"
    file.write_text("1000000000000")
    service.penstock("lookup", service.seen(place.root), "limit", service.seen(file))
    version = ask(f"{base}/lookups/limit")[1]
    looked = (version["version"], version["value"]) == (2, 10**12)
    shown = service.penstock("lookup", service.seen(place.root), "limit").strip()
    return [
        Figure("a subscriber from outside", told if right else f"{status} {left} {gone} {numbers[:3]}", "so",
               holds=right),
        Figure("versions of a look-up by the API and by command", f"{version['version']}, {shown}",
               "2, 1000000000000", holds=looked and shown == "1000000000000"),
        Figure("started again for it", float(run.attempts() != before), "= 0",
               holds=run.attempts() == before),
    ]  # fmt: skip
