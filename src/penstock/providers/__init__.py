"""Providers: who gives hosts to a site. One file each, one line in `registry`, and the contract suite.

A provider gives machines; what a machine does to become a member of a cluster (`joining`) is told by whoever
manages that cluster, so that no provider knows Spark.
"""
