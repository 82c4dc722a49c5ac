"""The command line: one file for each command, `main` puts them together.

Commands import what they need when they run, so that `penstock --help` starts at once and no command
starts Spark that does not use it.
"""
