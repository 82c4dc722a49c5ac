"""The command line: each command in its own file, wired together in `main`."""
