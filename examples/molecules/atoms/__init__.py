"""Online analysis of a molecular dynamics run (paper 002, section 5.4): where atoms are, how far they go."""
