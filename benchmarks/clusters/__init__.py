"""Existing clusters to try Penstock on: started here on loopback, used as if they were somebody else's.

`python -m benchmarks.clusters` is `make clusters`. The parts are real but for what says so in its name.
"""
