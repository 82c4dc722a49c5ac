"""A journal's database: opened by file or URL, asked with a bounded wait, its failures told in words.

What may pass (locked, full, out of reach, gone) is a JournalUnavailableError, after a few seconds at most;
what will not (no database, damaged, a defect of ours) a plain JournalError. A transaction is written whole
or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from penstock.controller.journal.migrations import VERSION, prepared, version_of
from penstock.errors import JournalError, JournalUnavailableError

WAIT_S = 3
"""How long a locked, silent or slow database is waited for. A tick must not stand still for longer."""
_PASSING = frozenset({3, 5, 6, 7, 8, 10, 13, 14, 15})
"""SQLite's codes for a file it cannot use now and perhaps can later (Python 3.10 has no names for them):
PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL."""


class Database:
    """One connection to a journal's database."""

    def __init__(self, url: str | Path, *, write_ahead: bool) -> None:
        self.address = str(url)
        try:
            parsed = _parsed(self.address)
            # Never in an error message: the password.
            self.address = parsed.render_as_string(hide_password=True)
            self._file = _file_of(parsed)
            self.engine = sa.create_engine(parsed, connect_args=_waits(parsed))
            self.dialect = self.engine.dialect.name
            if self.dialect not in ("sqlite", "postgresql"):
                raise JournalError(
                    f"cannot open the journal {self.address}: "
                    f"expected SQLite or PostgreSQL, got {self.dialect}"
                )
            if self.dialect == "sqlite" and write_ahead:
                sa.event.listen(self.engine, "connect", _write_ahead)
            self.connection = self.engine.connect()
        except SQLAlchemyError as error:
            raise self._told(error, "open") from error
        except ModuleNotFoundError as error:
            raise JournalError(
                f"cannot open the journal {self.address}: the package {error.name} is not installed; "
                'PostgreSQL needs: pip install "penstock[postgresql]"'
            ) from error
        try:
            self.found_version = prepared(self.connection)
            """The version of the tables found at opening; 0 where there were none."""
        except SQLAlchemyError as error:
            self.close()
            raise self._told(error, "open") from error
        except JournalError as error:
            self.close()
            raise JournalError(f"cannot open the journal {self.address}: {error}") from None
        self._identity = self._seen()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """The connection, to read from; no transaction stays open behind it."""
        try:
            yield self.connection
            self.connection.rollback()
        except SQLAlchemyError as error:
            self._back_out()
            raise self._told(error, "read") from error

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction: all that is done in it is written at its end, or nothing."""
        ending = False
        try:
            self._find_file()
            if self.dialect == "postgresql":
                self.connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{WAIT_S}s'")
            yield self.connection
            ending = True
            self.connection.commit()
        except SQLAlchemyError as error:
            self._back_out()
            raise self._told(error, "write", ending=ending) from error
        except BaseException:
            self._back_out()
            raise

    def close(self) -> None:
        """Let the database go; what was not written is not."""
        with suppress(SQLAlchemyError):  # it may be gone already
            self.connection.close()
        self.engine.dispose()

    def _back_out(self) -> None:
        with suppress(SQLAlchemyError):  # the first error is the one to tell
            self.connection.rollback()

    def _seen(self) -> tuple[int, int] | None:
        """Which file stands at the address; None where there is none."""
        try:
            found = os.stat(self._file) if self._file else None
        except OSError:
            return None
        return found and (found.st_dev, found.st_ino)

    def _find_file(self) -> None:
        """SQLite goes on writing to a file that was deleted, and all of it is lost: look before writing.

        A file that was brought back is opened again; whether it holds all that was written before is for
        the run's claim to tell.
        """
        if self._file is None or (seen := self._seen()) == self._identity:
            return
        if seen is None:
            raise JournalUnavailableError(
                f"cannot write the journal {self.address}: the file is gone{_likely_cause(self.address)}"
            )
        self.close()
        self.connection = self.engine.connect()
        if version_of(self.connection) != VERSION:
            raise JournalUnavailableError(
                f"cannot write the journal {self.address}: another file without its tables is in its place"
            )
        self._identity = seen

    def _told(self, error: SQLAlchemyError, doing: str, *, ending: bool = False) -> JournalError:
        cause = getattr(error, "orig", None) or error
        message = f"cannot {doing} the journal {self.address}: {cause}{_likely_cause(self.address)}"
        if _passing(error):
            return JournalUnavailableError(message, in_doubt=ending)
        return JournalError(message)


def _passing(error: SQLAlchemyError) -> bool:
    """Whether the same may succeed later."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _PASSING  # the rest of the code is a detail
    return error.connection_invalidated or isinstance(error, OperationalError)


def _parsed(address: str) -> sa.URL:
    """A database's URL; a plain path is a SQLite file. PostgreSQL is spoken to by psycopg 3."""
    url = sa.make_url(address if "://" in address else f"sqlite:///{address}")
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _file_of(url: sa.URL) -> str | None:
    """The file of a SQLite database; None for one in memory, for a URI with options and for a server."""
    name = url.database or ""
    is_file = url.get_backend_name() == "sqlite" and name and not name.startswith((":memory:", "file:"))
    return name if is_file else None


def _waits(url: sa.URL) -> dict[str, Any]:
    """How long to wait for the database, in its own words; what the URL says itself stays."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": WAIT_S}
    if url.get_backend_name() != "postgresql":
        return {}
    waits = {
        "connect_timeout": WAIT_S,
        "tcp_user_timeout": WAIT_S * 1000,
        "options": f"-c lock_timeout={WAIT_S}s",
    }
    return {name: value for name, value in waits.items() if name not in url.query}


def _likely_cause(address: str) -> str:
    """What is probably wrong with a SQLite file, in words; empty where nothing is known."""
    path = Path(address.removeprefix("sqlite:///"))
    if not address.startswith("sqlite:///"):
        return ""
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist"
    if path.is_dir():
        return "; it is a folder, expected a file"
    if path.exists() and not os.access(path, os.W_OK):
        return "; the file may not be written"
    return "" if os.access(path.parent, os.W_OK) else f"; the folder {path.parent} may not be written"


def _write_ahead(connection: Any, _: object) -> None:
    """SQLite's write-ahead log: readers (the page, another terminal) do not block the loop."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
