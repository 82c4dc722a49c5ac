"""Benchmarks: every speed claim, measured in one run, as figures with their bars.

`make bench` runs all areas, `make bench ONLY=core,spark` some. Each area is a module with one function
`figures()`. Ratios within one run mean something; absolute times depend on the machine.
"""
