"""Fakes of clouds: each says in its name that it is one. What is tested against them is our own code."""
