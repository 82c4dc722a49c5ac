"""The page: a run in a browser, while it goes on or from its journal.

A film is what the page needs of a run's journal; everything the page shows, now or at any earlier instant, is
drawn from it. The server hands films out on loopback to whoever has the token, and what is new as it comes.
"""
