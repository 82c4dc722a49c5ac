"""The journal: the durable record of every observation, decision, action, life and charge.

SQLite in the run's folder by default, PostgreSQL by its URL. One tick is one
transaction written *before* anything is enacted, with every action marked as intended; a second, small
one marks what was done. A controller that dies between the two finds its intentions here, says them again
(enacting is idempotent) and keeps the same books. Reports, the command line and tests read this record.

`tables` says what is kept, `rows` what goes in and comes out, `journal` is the record of one run; `database`
opens it, `migrations` brings an older one up to date, `unwritten` holds what could not be written yet,
`restoring` reads what a restarted controller takes up, `past` what the loads were, `retention` thins what
is old.
"""

from penstock.controller.journal.journal import CLOCK_ANCHOR, Journal
from penstock.controller.journal.past import EARLIER_LOADS
from penstock.controller.journal.restoring import MODE
from penstock.controller.journal.rows import (
    END_OF_RUN,
    Past,
    Rates,
    Recorder,
    Restored,
    TickRecord,
    enacted_kinds,
)
from penstock.controller.journal.tables import OBSERVATIONS

__all__ = [
    "CLOCK_ANCHOR",
    "EARLIER_LOADS",
    "END_OF_RUN",
    "MODE",
    "OBSERVATIONS",
    "Journal",
    "Past",
    "Rates",
    "Recorder",
    "Restored",
    "TickRecord",
    "enacted_kinds",
]
