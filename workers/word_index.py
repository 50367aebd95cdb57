"""The index outside follows PostgreSQL: for upkeep, and for `mem lexical rebuild`.

Whatever changes a node lists it in the same transaction, so nothing is lost while the index cannot
be reached or a process dies: a node leaves the list once the index has it as it is.
"""

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, LexicalEngineUnavailable
from workers.lexicon import Progress
from workers.model import ProjectName
from workers.store.database import Database
from workers.store.word_backlog import WRITER_LOCK, PostgresWordBacklog, count_listed

if TYPE_CHECKING:
    from workers.engines.opensearch.index import Aliases, WordIndex

BATCH = 256  # nodes of one write
ROUND_S = 2.0  # between two looks at how far a rebuild is
LOOK_S = 0.2  # while another process writes
ATTEMPTS = 6  # in a row, before an index that takes nothing is given up
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # between them
COUNT_S = 60.0  # nobody waits for one

Troubled = Callable[[str], None]
"""Is told why something is not in the index yet, in words."""


class Follower:
    """Brings to the index what it lacks. Killed at any point, whoever comes next goes on.

    One process at a time writes, so that of two states of a node the older one never comes last;
    and each write has a number, for one that was given up and arrives all the same.
    """

    def __init__(self, database: Database, index: "WordIndex", batch: int = BATCH) -> None:
        """batch: nodes of one write."""
        self._database = database
        self._index = index
        self._batch = batch

    def follow(self, end: Deadline, troubled: Troubled) -> int:
        """Work off the list until it is empty or the time is up; how many nodes that were.

        None are where another process is at it. Where there is no index, one is begun; one that has
        become complete is read from then on.

        Raises:
            DeadlineExceeded, LexicalEngineUnavailable: the index does not take it now.
            StoreUnavailable: PostgreSQL does not answer.
        """
        with self._database.alone(WRITER_LOCK) as connection:
            if connection is None:
                return 0
            backlog = PostgresWordBacklog(connection)
            aliases = self._index.aliases()
            name = _current(backlog, aliases) or self._begin(backlog, aliases)
            count = 0
            names = {name, *aliases.read}
            while not end.passed() and (done := self._write_some(backlog, names, troubled)):
                count += done
            if name not in aliases.read and backlog.is_complete():
                self._index.publish(name, instead_of=(aliases.read | aliases.written) - {name})
            return count

    def rebuild(
        self,
        only: ProjectName | None,
        told: Callable[[Progress], None],
        troubled: Troubled,
        pause: Callable[[float], None] = time.sleep,
    ) -> int:
        """Write nodes anew: all into a new index, or those of one project into the present one.

        A new one is read once it is complete; one that is being filled already is gone on with.
        Returns how many nodes there were to write.

        Raises:
            As `follow`, where the index goes on failing.
        """
        while (until := self._list_anew(only)) is None:
            pause(LOOK_S)
        left = total = self._count(only, until)
        pause_s, failures = FIRST_PAUSE_S, 0
        while left or (only is None and not self._is_read()):
            told(Progress(max(0, total - left), total))
            try:
                done = self.follow(Deadline.after(ROUND_S), troubled)
            except (DeadlineExceeded, LexicalEngineUnavailable) as error:
                failures += 1
                if failures == ATTEMPTS:
                    raise
                troubled(str(error))
                pause(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            else:
                pause_s, failures = FIRST_PAUSE_S, 0
                if not done:
                    pause(LOOK_S)
            left = self._count(only, until)
        told(Progress(total, total))
        return total

    def _list_anew(self, only: ProjectName | None) -> int | None:
        """List what is to be written; up to which change that is. None: another process writes."""
        with self._database.alone(WRITER_LOCK) as connection:
            if connection is None:
                return None
            backlog, aliases = PostgresWordBacklog(connection), self._index.aliases()
            name = _current(backlog, aliases)
            if name is None or (only is None and name in aliases.read):
                self._begin(backlog, aliases)
            elif only is not None:
                backlog.list_again(only)
            return backlog.next_number()

    def _begin(self, backlog: PostgresWordBacklog, aliases: "Aliases") -> str:
        """A new index, and every node on the list."""
        self._index.drop(aliases.written - aliases.read)  # begun, and never completed
        name = self._index.name_of(backlog.next_number())
        self._index.create(name)
        backlog.begin(name)
        return name

    def _write_some(
        self, backlog: PostgresWordBacklog, names: Collection[str], troubled: Troubled
    ) -> int:
        """Write what has waited longest; how many nodes are off the list now."""
        number = backlog.next_number()  # before they are read: later writes know at least as much
        taken = backlog.take(self._batch)
        if not taken:
            return 0
        written = self._index.write([(one.key, one.fields) for one in taken], names, number)
        left = {*written.refused, *written.put_off}
        done = [one for one in taken if one.key not in left]
        backlog.settle(done, later=written.refused)
        if written.refused:
            (project, sha256), reason = next(iter(written.refused.items()))
            troubled(
                f"OpenSearch refuses {len(written.refused):,} nodes, the first of them"
                f" {sha256[:12]} of project {project!r}: {reason}."
            )
        if written.put_off:
            raise LexicalEngineUnavailable("OpenSearch takes no more for now; it is tried again.")
        return len(done)

    def _is_read(self) -> bool:
        with self._database.transaction() as connection:
            found = PostgresWordBacklog(connection).find_index()
        return found in self._index.aliases().read

    def _count(self, only: ProjectName | None, until: int) -> int:
        return count_listed(self._database, Deadline.after(COUNT_S), only, until)


def stop_following(database: Database) -> None:
    """No index outside is told of changes any more; what is there of it stays as it is.

    Raises:
        StoreUnavailable: PostgreSQL does not answer.
    """
    with database.transaction() as connection:
        PostgresWordBacklog(connection).end()


def _current(backlog: PostgresWordBacklog, aliases: "Aliases") -> str | None:
    """The index that follows, if it is still there."""
    name = backlog.find_index()
    return name if name in aliases.written else None
