"""What the endurance run makes of its samples."""

from __future__ import annotations

from faults.endurance import figures, reachable_mib

HISTOGRAM = """22046:
 num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:        432674      105636888  [B (java.base@17.0.15)
   2:             1             16  TotalOrder
Total       1215632      104857600
"""


def test_what_java_keeps_is_the_sum_of_what_can_be_reached():
    assert reachable_mib(HISTOGRAM) == 100.0
    assert reachable_mib("com.sun.tools.attach.AttachNotSupportedException") is None


def test_what_was_looked_at_twice_is_compared_and_what_grew_is_told():
    samples: list[dict[str, float]] = [{"memory": 100.0, "files": 7.0} for _ in range(20)]
    samples[3]["heap"], samples[19]["heap"] = 50.0, 80.0
    found = {f.name: f for f in figures(samples, 120.0, (43_200, 9_000), 7_000)}
    assert found["memory: last tenth to second"].holds
    assert found["heap: last tenth to second"].here == 1.6
    assert found["heap: last tenth to second"].holds is False
