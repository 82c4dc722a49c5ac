"""All that is private of Spark: the only place that reaches through PySpark into its Java driver.

Spark has no public call to change executors, to read a streaming query's events cheaply, or to look at a
plan. What is used instead may differ from version to version, so it is used here alone, behind functions
with plain values in and out. What a version or a cluster lacks is found by trying (`capabilities`), never
by its number. A test keeps the private names out of every other module.
"""
