"""A PostgreSQL server with a folder of its own, for as long as the tests run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["PASSWORD", "PostgresServer", "installed"]

PASSWORD: Final = "not-to-be-shown"  # noqa: S105 - of a server that lives for a minute, on loopback
_USER: Final = "postgres"


def installed() -> Path | None:
    """The folder of the server's programs, of the newest version; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """The server; entering starts it, leaving stops it and removes its folder.

    Args:
        programs: Folder of its programs.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Not pytest's folder: the server's user has to reach it, and a socket's path has to be short.
        self._folder = Path(tempfile.mkdtemp(prefix="agentloop-pg-"))
        self.port = _free_port()

    def url(self, database: str = "postgres", *, password: str | None = PASSWORD) -> str:
        """Where one of its databases is.

        Args:
            database: The database.
            password: The password to name; None: none.
        """
        secret = "" if password is None else f":{password}"
        return f"postgresql://{_USER}{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self, name: str) -> str:
        """Make an empty database and return its URL.

        Args:
            name: Its name.
        """
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run a statement and return what it prints.

        Args:
            statement: The statement.
            database: Where.
        """
        arguments = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-v", "ON_ERROR_STOP=1", "-Atc", statement]
        return self._run("psql", *arguments, database, PGPASSWORD=PASSWORD)

    def stop(self) -> None:
        """Stop it at once."""
        self._as_server_user("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self._folder} -c max_connections=64"
        log = str(self._folder / "log")
        self._as_server_user("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "start")

    def __enter__(self) -> PostgresServer:
        secret = self._folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if os.getuid() == 0:
            for path in (self._folder, secret):
                shutil.chown(path, _USER)
        data = str(self._folder / "data")
        self._as_server_user(
            "initdb",
            "-D",
            data,
            "-U",
            _USER,
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(secret),
            "-E",
            "UTF8",
            "--locale=C",
        )
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _as_server_user(self, program: str, *args: str) -> None:
        # It refuses to run as root.
        before = ["runuser", "-u", _USER, "--"] if os.getuid() == 0 else []
        self._start([*before, str(self._programs / program), *args])

    def _run(self, program: str, *args: str, **environment: str) -> str:
        return self._start([str(self._programs / program), *args], **environment)

    def _start(self, words: list[str], **environment: str) -> str:
        # The server inherits what its starter has open: with a pipe, waiting for the starter would wait for it.
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run(  # noqa: S603 - the system's own programs
                words,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
                env={**os.environ, **environment},
                cwd="/",
            )
            out.seek(0)
            said = out.read()
        assert done.returncode == 0, said
        return said.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
