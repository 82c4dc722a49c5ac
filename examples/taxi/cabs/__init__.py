"""The taxi fleet of paper 003: rides, the operators over their positions, and the same in batch."""
