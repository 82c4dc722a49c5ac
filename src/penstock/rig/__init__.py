"""The rig: hosts for tests that are as real as one machine allows.

A host is a network, process and mount namespace with an address, a process tree, a private disk and limits of
its own. Sites are joined by a wide area network with delay, jitter and loss. One process, the keeper, holds
all of it in namespaces of its own: when it ends, however it ends, everything in the rig ends with it.
Needs Linux and root; `availability.unavailable` says what is missing.
"""
