"""Where a store is: a file or a server, with the password kept apart from what is shown."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from agentloop_autogen.errors import UsageError

__all__ = ["StoreAddress", "default_path", "parse_address", "split_password"]

_FILE: Final = "slots.sqlite3"
_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_MEND: Final = "give a file, or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where a store is."""

    url: URL
    """What SQLAlchemy connects to, password included."""
    path: Path | None
    """The SQLite file; None: a server."""
    is_default: bool
    """Whether nobody named it: its folder is made when needed."""

    @property
    def shown(self) -> str:
        """The place as it may be shown: never with a password."""
        return str(self.path) if self.path is not None else self.url.render_as_string(hide_password=True)


def default_path() -> Path:
    """The file of the embedded store: in `$AGENTLOOP_CACHE` where that is set, else the user's data folder."""
    own = os.environ.get("AGENTLOOP_CACHE")
    if own:
        return Path(own).expanduser() / _FILE
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "agentloop" / _FILE


def parse_address(url: str | None, password: SecretStr | None) -> StoreAddress:
    """Say where a store is.

    Args:
        url: A path, or a URL without a password. None: the default file.
        password: The server's password; None: the driver looks for one (`PGPASSWORD`, `~/.pgpass`).

    Raises:
        UsageError: It is neither a file nor a PostgreSQL server.
    """
    if url is None:
        return _file(default_path(), is_default=True)
    if "://" not in url:
        return _file(Path(url).expanduser(), is_default=False)
    parsed = _parsed(url)
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise UsageError(f"no slot store is kept in {parsed.drivername!r}: {_MEND}")
    if driver.startswith("sqlite"):
        if not parsed.database or parsed.database == ":memory:" or parsed.query:
            raise UsageError(f"a slot store in SQLite is a plain file, not {url!r}: {_MEND}")
        return _file(Path(parsed.database).expanduser(), is_default=False)
    secret = password.get_secret_value() if password is not None else ""
    # A dump to JSON leaves asterisks of a password.
    known = secret if secret.strip("*") else None
    return StoreAddress(url=parsed.set(drivername=driver, password=known), path=None, is_default=False)


def split_password(url: str) -> tuple[str, str | None]:
    """Take the password out of a URL.

    Args:
        url: A path or a URL.

    Returns:
        The same without a password, and the password where there was one.
    """
    if "://" not in url:
        return url, None
    parsed = _parsed(url)
    in_query = parsed.query.get("password")
    password = parsed.password or (in_query if isinstance(in_query, str) else None)
    if parsed.password is None and in_query is None:
        return url, None
    bare = parsed._replace(password=None).difference_update_query(["password"])
    return bare.render_as_string(hide_password=False), password


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The text may hold a password, so that it is not repeated, not even as the cause.
        raise UsageError(f"the URL of the slot store cannot be read: {_MEND}") from None


def _file(path: Path, *, is_default: bool) -> StoreAddress:
    url = URL.create("sqlite+aiosqlite", database=str(path))
    return StoreAddress(url=url, path=path, is_default=is_default)
