"""The factory of paper 000: machines, nine operators, one person to inform.

Sensors report availability (S1), production data as pictures of a display (S2) and temperature (S3);
operators O1 to O9 read, watch, combine and report them. `factory.yaml` is the topology, `operators`
has its functions, `machines` makes the data and knows the truth about it.
"""
