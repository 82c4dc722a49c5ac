"""One file per paper: its tables and figures, computed by this code and set beside the paper's.

Each has `run(seeds, out, progress)` and ends in figures, a page of plots and a short verdict.
"""
