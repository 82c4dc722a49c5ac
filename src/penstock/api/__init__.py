"""The API of a service: what runs at a site, seen and changed over HTTP by whoever has its token.

`runs` finds, starts and takes up the runs in a folder; `app` is the HTTP side of it, `answers` what goes over
the wire. The rest of Penstock knows nothing of HTTP: a change goes into a run's inbox as `penstock apply`'s
does, and everything that is read is read from the run's folder and its journal.
"""
