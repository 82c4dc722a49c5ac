"""The fleet: hosts, instances and units, and the life each of them lives.

The one model between the control loop and everything that runs. It is pure: it reads no clock, starts
nothing and asks nobody. What lives below it (a simulator, a Spark cluster, an attached session) tells it
what was seen; the loop asks it what is there and what is wanted.
"""
