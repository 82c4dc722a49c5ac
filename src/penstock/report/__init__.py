"""Results for people: figures with their bars, and one self-contained HTML page for a run.

Both the simulator and the Spark plane hand a `RunResult` here; nothing in this room computes a result.
"""

from penstock.report.figures import Figure, print_figures, write_figures

__all__ = ["Figure", "print_figures", "write_figures"]
