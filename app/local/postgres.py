"""PostgreSQL as a direct child: found, initialised once, started, and given its database."""

import os
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from app.local.binaries import (
    POSTGRES_CHOICES,
    PostgresFiles,
    find_postgres,
    usable_postgres,
)
from app.local.errors import StackError
from app.local.folders import (
    load_password,
    make_own_folder,
    server_account,
    socket_folder,
)
from app.local.processes import Account, ProcessSpec, end_orphan, run_to_end

ADMIN = "poimen_admin"
ROLE = DATABASE = "poimen"
SOCKET_NAME = ".s.PGSQL.5432"
BUILTIN_LOCALE_SINCE = 17
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}

SETTINGS = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "max_connections": "400",
    "shared_buffers": "256MB",
    "maintenance_work_mem": "512MB",
    # Containers have a small /dev/shm, on which parallel index builds fail.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "fsync": "on",
    "full_page_writes": "on",
    "password_encryption": "scram-sha-256",
    "logging_collector": "off",
    "log_timezone": "'UTC'",
    "timezone": "'UTC'",
}


class Postgres:
    """One cluster under `<data_dir>/postgres`. The caller holds the lock of the data folder.

    Root-owned files stay outside the folders which the server's account owns: root never writes
    where that account could have put a link.
    """

    def __init__(self, data_dir: Path, log: Path) -> None:
        files = find_postgres()
        if files is None:
            raise StackError(POSTGRES_CHOICES)
        self._found = files
        self._log = log
        self.folder = data_dir / "postgres"
        self.cluster = self.folder / str(files.major)
        self._config = self.folder / "postgres.conf"
        self._pid_file = self.cluster / "postmaster.pid"
        self._admin_password = self.folder / "admin.password"
        self._account = server_account(data_dir, self.cluster)
        self.run_folder = socket_folder(self.folder / "run", SOCKET_NAME)
        self.version = files.version

    def prepare(self, check: Callable[[], None]) -> ProcessSpec:
        """Everything before the start: files, cluster, configuration, no server of an earlier run.

        Raises:
            StackError: something cannot be used; the message says what.
            StopRequested: `check` raised it.
        """
        self._refuse_other_major()
        self.folder.mkdir(exist_ok=True)
        if self._account:
            self.folder.chmod(0o711)
        files = usable_postgres(self._found, self._account, self.folder)
        if not self.cluster.exists():
            self._initialise(files, check)
        make_own_folder(self.run_folder, self._account)
        self._write_config()
        end_orphan(self._pid_file, str(self.cluster), signal.SIGINT, signal.SIGQUIT)
        self._disown_lock_files()
        argv = (files.server, "-D", self.cluster, "-c", f"config_file={self._config}")
        return ProcessSpec(
            name="PostgreSQL",
            argv=tuple(map(str, argv)),
            log=self._log,
            cwd=Path("/"),
            env=ENVIRONMENT,
            # SIGTERM would wait for every client to leave by itself.
            stop_signal=signal.SIGINT,
            force_signal=signal.SIGQUIT,
            orphan_signal=signal.SIGINT,
            account=self._account,
        )

    def is_ready(self, pid: int) -> bool:
        """Whether that very server process accepts connections."""
        try:
            lines = self._pid_file.read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def create_database(self) -> str:
        """Create role, database and extension where they are missing; the role's URL.

        The role is no superuser, so row-level security binds it; the extension needs one.
        """
        password = load_password(self.folder / "password")
        with self._connect_as_admin("postgres") as admin:
            if not _exists(admin, "SELECT 1 FROM pg_roles WHERE rolname = %s", ROLE):
                admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(ROLE)))
            # Only a verifier travels: statements may end in a log.
            verifier = admin.pgconn.encrypt_password(
                password.encode(), ROLE.encode(), b"scram-sha-256"
            ).decode()
            alter = sql.SQL("ALTER ROLE {} PASSWORD {}")
            admin.execute(alter.format(sql.Identifier(ROLE), sql.Literal(verifier)))
            if not _exists(admin, "SELECT 1 FROM pg_database WHERE datname = %s", DATABASE):
                create = sql.SQL("CREATE DATABASE {} OWNER {}")
                admin.execute(create.format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))
        with self._connect_as_admin(DATABASE) as admin:
            admin.execute("CREATE EXTENSION IF NOT EXISTS vector")
            admin.execute("ALTER EXTENSION vector UPDATE")
        return f"postgresql://{ROLE}:{password}@/{DATABASE}?host={quote(str(self.run_folder))}"

    def _connect_as_admin(self, database: str) -> psycopg.Connection:
        try:
            return psycopg.connect(
                host=str(self.run_folder),
                port=5432,
                user=ADMIN,
                password=load_password(self._admin_password),
                dbname=database,
                autocommit=True,
            )
        except psycopg.OperationalError as error:
            raise StackError(
                f"The embedded database refuses {self._admin_password}: {error}"
            ) from error

    def _refuse_other_major(self) -> None:
        majors = [path.name for path in self.folder.glob("*") if path.name.isdigit()]
        if majors and self.cluster.name not in majors:
            raise StackError(
                f"{self.folder} holds data of PostgreSQL {', '.join(majors)}, and PostgreSQL "
                f"{self._found.version} was found: install the old one, dump the data, then go on."
            )

    def _initialise(self, files: PostgresFiles, check: Callable[[], None]) -> None:
        for unfinished in self.folder.glob("*.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        new = self.folder / f"{self.cluster.name}.new-{os.getpid()}-{secrets.token_hex(4)}"
        make_own_folder(new, self._account)
        read_end = _password_pipe(load_password(self._admin_password), self._account)
        try:
            run_to_end(self._initdb(files, new, read_end), check)
        finally:
            os.close(read_end)
        new.rename(self.cluster)  # only a whole cluster ever bears the name

    def _initdb(self, files: PostgresFiles, folder: Path, password_fd: int) -> ProcessSpec:
        locale = ["--locale=C.UTF-8"]
        if files.major >= BUILTIN_LOCALE_SINCE:  # the same order on every operating system
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        argv = (
            *(str(files.bin / "initdb"), "-D", str(folder), "-U", ADMIN),
            *("--auth=scram-sha-256", f"--pwfile=/dev/fd/{password_fd}"),
            *("--encoding=UTF8", *locale, "--data-checksums"),
        )
        return ProcessSpec(
            name="initdb",
            argv=argv,
            log=self._log,
            cwd=Path("/"),
            env=ENVIRONMENT,
            account=self._account,
            pass_fds=(password_fd,),
        )

    def _write_config(self) -> None:
        sockets = '"' + str(self.run_folder).replace('"', '""') + '"'
        lines = [f"include = {_quoted(str(self.cluster / 'postgresql.conf'))}"]
        lines += [f"{name} = {value}" for name, value in SETTINGS.items()]
        lines += [f"unix_socket_directories = {_quoted(sockets)}", ""]
        self._config.write_text("\n".join(lines))
        self._config.chmod(0o644)  # the server's account reads it; no secret is in it

    def _disown_lock_files(self) -> None:
        """Make sure that what a killed server left behind is no obstacle.

        The server refuses to start while the number in its pid file is anyone's: a stranger's
        who got it since, or its own zombie's. It ignores its own parent's number, though, and
        still looks for shared memory in use; that is why the pid file is not simply removed.
        """
        for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
            (self.run_folder / name).unlink(missing_ok=True)
        try:
            number, _, rest = self._pid_file.read_text().partition("\n")
        except FileNotFoundError:
            return
        if not number.strip().isdigit():
            self._pid_file.unlink()  # cut short by a crash; the server would refuse it
            return
        file = os.open(self._pid_file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with os.fdopen(file, "w") as stale:
            stale.write(f"{os.getpid()}\n{rest}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _exists(connection: psycopg.Connection, query: str, name: str) -> bool:
    return connection.execute(query, (name,)).fetchone() is not None


def _password_pipe(password: str, account: Account | None) -> int:
    """The read end of a pipe that holds a password: no file, no argument, no environment."""
    read_end, write_end = os.pipe()
    if account:
        os.fchown(read_end, account.uid, account.gid)
    os.write(write_end, password.encode() + b"\n")
    os.close(write_end)
    return read_end
