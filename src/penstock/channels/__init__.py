"""Channels: the durable, replayable streams between units, and what every record carries through them.

`files` needs nothing but a disk and is exactly once; `kafka` needs a broker and is at least once.
Read in this order: `model`, `envelope`, `files`, `kafka`, `registry`; `feeder` makes demo records,
`maven` and `broker` bring up a Kafka broker for tests and demos. pyspark is imported inside functions.
"""
