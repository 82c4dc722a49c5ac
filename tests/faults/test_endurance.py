"""What the endurance run makes of its samples."""

from __future__ import annotations

from faults.endurance import figures, heap_mib

SERIAL = """
 def new generation   total 116224K, used 1024K [0x0000000687400000, 0x000000068f210000)
  eden space 103360K,   0% used [0x0000000687400000, 0x0000000687400000, 0x000000068d8f0000)
 tenured generation   total 258048K, used 51200K [0x0000000704d50000, 0x0000000714950000)
 Metaspace       used 9030K, committed 9216K, reserved 1114112K
"""
G1 = " garbage-first heap   total 233472K, used 59392K [0x0000000687400000, 0x0000000800000000)"


def test_a_heap_is_what_is_used_of_all_its_generations():
    assert heap_mib(SERIAL) == 51.0
    assert heap_mib(G1) == 58.0


def test_what_was_looked_at_twice_is_compared_and_what_grew_is_told():
    samples: list[dict[str, float]] = [{"memory": 100.0, "files": 7.0} for _ in range(20)]
    samples[3]["heap"], samples[19]["heap"] = 50.0, 80.0
    found = {f.name: f for f in figures(samples, 120.0, (43_200, 9_000), 7_000)}
    assert found["memory: last tenth to second"].holds
    assert found["heap: last tenth to second"].here == 1.6
    assert found["heap: last tenth to second"].holds is False
