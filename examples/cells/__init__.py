"""The cell laboratory of paper 001: pictures of tissue, and questions about what they showed.

A microscope sends fluorescence pictures; each is blurred, split into channels, searched for edges, and its
cells are counted. Every region of the tissue keeps what its last 1000 pictures showed, and queries are
answered from that. `cells.yaml` is the topology, `tissue` draws the pictures and knows the truth about them.
"""
