"""A run of atoms as a picture (SVG): where they are in one slice of the grid, and how far they went."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoms.analysis import CELLS, counts, travelled
from atoms.dynamics import Recorded

SIZE = 26
"""Of a cell."""


def draw(file: Path, frames: Recorded) -> Path:
    """Write the picture: one layer of the histogram, and the distances of one iteration by frequency."""
    iteration = len(frames.positions) // 2
    grid = counts(frames.frame(iteration), frames.box).reshape(CELLS, CELLS, CELLS)[:, :, CELLS // 2]
    far = travelled(frames.frame(iteration - 1), frames.frame(iteration), frames.box)
    heights, edges = np.histogram(far, bins=30)
    width, left = 2 * CELLS * SIZE + 120, CELLS * SIZE + 80
    bottom = 40 + CELLS * SIZE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 40}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{bottom + 40}" fill="#fff"/>',
        f'<text x="20" y="24" fill="#333">atoms by cell, one layer of {CELLS}, iteration {iteration}</text>',
        f'<text x="{left}" y="24" fill="#333">how far atoms went in one iteration</text>',
    ]
    most = max(int(grid.max()), 1)
    for row in range(CELLS):
        for column in range(CELLS):
            number = int(grid[row, column])
            shade = 245 - round(170 * number / most)
            parts.append(
                f'<rect x="{20 + column * SIZE}" y="{40 + row * SIZE}" width="{SIZE}" height="{SIZE}" '
                f'fill="rgb({shade},{shade + 5},250)"/><text x="{20 + (column + 0.5) * SIZE}" '
                f'y="{40 + (row + 0.65) * SIZE}" text-anchor="middle" fill="#222">{number}</text>'
            )
    step = CELLS * SIZE / len(heights)
    for place, number in enumerate(heights):
        high = CELLS * SIZE * number / heights.max()
        parts.append(
            f'<rect x="{left + place * step:.1f}" y="{bottom - high:.1f}" width="{step - 1:.1f}" '
            f'height="{high:.1f}" fill="#1f618d"/>'
        )
    parts.append(f'<text x="{left}" y="{bottom + 18}" fill="#333">{edges[0]:.3f}</text>')
    parts.append(
        f'<text x="{left + CELLS * SIZE}" y="{bottom + 18}" text-anchor="end" fill="#333">'
        f"{edges[-1]:.3f} σ</text></svg>"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts) + "\n")
    return file
