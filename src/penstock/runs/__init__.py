"""Runs: what the outside may touch of them. The command line uses this room, and so can an API.

`folder` is where a run keeps everything, `plan` what it shall do, `run` the run itself in one process,
`service` the same in a process of its own with a watcher, `commands` what it can be told while it runs.
"""
