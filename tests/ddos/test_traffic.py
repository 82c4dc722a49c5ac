"""Packets, the traffic they make and its truth, and that a feeder sends exactly these."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from detector.packets import ACK, TCP, UDP, Packet, address, dotted, parsed, written
from detector.traffic import ATTACKS, PERIOD_S, captured, period_of, truth

from penstock.channels.feeder import feed
from penstock.channels.sinks import read_results
from penstock.topology.file import load_topology
from penstock.topology.model import Choice

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ddos"
LOAD = Choice("constant", {"level_per_s": 200.0})
ONE = Packet(7, 1_500_000, address("192.168.0.9"), address("10.0.0.2"), 5000, 443, TCP, ACK, 900)


@pytest.mark.parametrize("packet", [ONE, replace(ONE, protocol=UDP, flags=0)])
def test_a_packet_is_read_as_it_was_written(packet: Packet) -> None:
    assert parsed(written(packet)) == packet


@pytest.mark.parametrize("cut", [16, 30, 50])
def test_a_packet_that_is_cut_short_keeps_its_number_and_nothing_else(cut: int) -> None:
    found = parsed(written(ONE)[:cut])
    assert (found.number, found.time_us, found.protocol, found.source) == (7, 1_500_000, 0, 0)


@pytest.mark.parametrize("place", range(16, 36))
def test_one_damaged_byte_of_the_header_is_noticed(place: int) -> None:
    raw = bytearray(written(ONE))
    raw[place] ^= 0x21
    assert parsed(bytes(raw)).protocol == 0


def test_every_kind_of_attack_is_in_every_minute_and_the_truth_knows_whose_it_was() -> None:
    packets = list(captured("packets", LOAD, 60.0))
    kinds = truth(packets)
    assert set(kinds.values()) == {attack.kind for attack in ATTACKS}
    assert [labelled.packet.number for labelled in packets] == list(range(1, 12001))
    forged = {source for (_, source, _), kind in kinds.items() if kind == "distributed"}
    alone = {source for (_, source, _), kind in kinds.items() if kind == "spoofed"}
    assert len(forged) > 400
    assert {dotted(source) for source in alone} == {"198.18.0.1"}
    for attack in ATTACKS:
        periods = {period for (period, _, _), kind in kinds.items() if kind == attack.kind}
        assert min(periods) == period_of(round(attack.from_s * 1e6))
        assert max(periods) <= attack.to_s // PERIOD_S


def test_a_day_without_attacks_has_none() -> None:
    assert truth(list(captured("packets", LOAD, 20.0, ()))) == {}


def test_a_feeder_sends_what_the_truth_is_made_of_also_where_it_goes_on(tmp_path: Path) -> None:
    source = load_topology(EXAMPLE / "ddos.yaml").source_by_name["packets"]
    assert source.records is not None
    assert source.schema is not None
    folder = tmp_path / "packets" / "parser"
    clock, calls = [1000.0], iter(range(100))

    def wait(span_s: float) -> None:
        clock[0] += span_s

    for stopped in (lambda: next(calls) >= 13, lambda: False):
        feed(
            "packets", LOAD, source.schema, [folder], 1000.0, 3.0, lambda: clock[0], wait, stopped,
            source.records,
        )  # fmt: skip
    sent = [base64.b64decode(record["packet"]) for record in read_results(folder)]
    assert sent == [written(labelled.packet) for labelled in captured("packets", LOAD, 3.0)]
