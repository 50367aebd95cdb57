"""Filling a scratch memory: a few projects through the product's own ingest, the rest as copies."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from app.bench.errors import BenchError
from app.bench.texts import Writer
from app.client import Client

TURNS_PER_SESSION = 50
PARENTS = 3
POLL_S = 0.25  # rare enough that asking for the state costs next to nothing of what is measured
DIGITS = 6  # of a number of a vector, as it travels

Node = dict[str, Any]
Row = tuple[Any, ...]

# The identities of the copies, written as the product writes them: a compact JSON array.
_COPIED = """
CREATE TEMPORARY TABLE copied ON COMMIT DROP AS
SELECT sha256 AS old,
       encode(sha256(convert_to('[' || to_json(%(target)s::text) || ',' || to_json(level) || ','
              || to_json(kind) || ',' || to_json(source) || ',' || to_json(text) || ',0]',
              'UTF8')), 'hex') AS new
  FROM memory_node
 WHERE project = %(source)s
"""
# Every table that hangs on nodes, with its columns and those of them that name a node.
_TABLES = """
SELECT held.relname,
       array_agg(DISTINCT held_column.attname) AS columns,
       array_agg(DISTINCT held_column.attname)
           FILTER (WHERE held_column.attnum = ANY(key.conkey)) AS keys
  FROM pg_constraint AS key
  JOIN pg_class AS held ON held.oid = key.conrelid
  JOIN pg_attribute AS held_column
    ON held_column.attrelid = held.oid AND held_column.attnum > 0
   AND NOT held_column.attisdropped AND held_column.attgenerated = ''
 WHERE key.contype = 'f' AND key.confrelid = 'memory_node'::regclass
 GROUP BY held.relname ORDER BY held.relname
"""
_COLUMNS = """
SELECT array_agg(attname) FROM pg_attribute
 WHERE attrelid = 'memory_node'::regclass AND attnum > 0 AND NOT attisdropped
   AND attgenerated = ''
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes of each level a project has."""

    turns: int
    notes: int
    syntheses: int

    @classmethod
    def of(cls, nodes: int) -> "Size":
        """In the proportions of a memory of conversations: 12 turns, 4 notes, 1 synthesis."""
        notes, syntheses = max(PARENTS, nodes * 4 // 17), max(1, nodes // 17)
        return cls(max(PARENTS, nodes - notes - syntheses), notes, syntheses)

    @property
    def nodes(self) -> int:
        return self.turns + self.notes + self.syntheses


def project_nodes(writer: Writer, size: Size) -> list[Node]:
    """The nodes of one project as they are submitted, parents before children."""
    turns = [f"turn-{number}" for number in range(size.turns)]
    notes = [f"note-{number}" for number in range(size.notes)]
    nodes = [_turn(writer, number) for number in range(size.turns)]
    nodes += [_made(writer, "L1", "note", name, turns) for name in notes]
    syntheses = [f"synthesis-{number}" for number in range(size.syntheses)]
    return nodes + [_made(writer, "L2", "synthesis", name, notes) for name in syntheses]


def _turn(writer: Writer, number: int) -> Node:
    return {
        "id": f"turn-{number}",
        "level": "L0",
        "kind": "turn",
        "source": f"session:{number // TURNS_PER_SESSION}",
        "position": number % TURNS_PER_SESSION,
        "text": writer.passage(),
    }


def _made(writer: Writer, level: str, kind: str, name: str, below: list[str]) -> Node:
    return {
        "id": name,
        "level": level,
        "kind": kind,
        "source": f"bench/{name}",
        "text": writer.passage(),
        "parents": writer.choose(below, PARENTS),
    }


def give_vectors(nodes: Sequence[Node], model: str, dimension: int, seed: str) -> None:
    """Put a random vector of length 1 on every node, as if it had been made elsewhere."""
    source = random.Random(seed)  # noqa: S311 - no secret
    for node in nodes:
        raw = [source.gauss(0, 1) for _ in range(dimension)]
        norm = sum(number * number for number in raw) ** 0.5
        node["embedding"] = [round(number / norm, DIGITS) for number in raw]
        node["embedding_model"] = model


def ingest(client: Client, project: str | None, nodes: Sequence[Node]) -> float:
    """Store nodes through the service; the seconds from handing them over to the job's end.

    Without a project, each node names its own.

    Raises:
        BenchError: not every node was stored.
    """
    began = time.time()
    job: Mapping[str, Any] = client.submit_ingest(nodes, project=project)
    while (job := client.show_ingest(job["id"]))["status"] in ("queued", "running"):
        time.sleep(POLL_S)
    stored = sum(file["stored"] for file in job["files"])
    if job["status"] != "completed" or stored != len(nodes):
        said = (job["error"] or {}).get("message", f"{stored} of {len(nodes)} stored")
        raise BenchError(f"The service did not store what it was given: {said}")
    return datetime.fromisoformat(job["finished_at"]).timestamp() - began


_COPY_TERMS = """
INSERT INTO node_terms (project, sha256, level, length, analysis, terms)
SELECT %(target)s, copied.new, level, length, analysis, terms
  FROM node_terms JOIN copied ON copied.old = sha256
 WHERE project = %(source)s
"""
_COPY_POSTINGS = """
INSERT INTO posting (project, term, level, node, tf, length)
SELECT %(target)s, term, level, left(copied.new, 32)::uuid, tf, length
  FROM posting JOIN copied ON left(copied.old, 32)::uuid = node
 WHERE project = %(source)s
 ORDER BY term, level, copied.new
"""


def copy_projects(
    database_url: str, pairs: Sequence[tuple[str, str]], told: Callable[[int], None]
) -> None:
    """Copy projects within the database, (from, to) each, with identities of their own.

    Everything that hangs on a node is copied: its vectors, prepared tokens, words and edges.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        for done, (source, target) in enumerate(pairs, start=1):
            with connection.transaction():
                _copy_project(connection, source, target)
            told(done)
        # Now, not by the server in the middle of a measurement.
        connection.execute("VACUUM ANALYZE")


def _copy_project(connection: psycopg.Connection[Row], source: str, target: str) -> None:
    names = {"source": source, "target": target}
    connection.execute("INSERT INTO project (project) VALUES (%(target)s)", names)
    connection.execute(_COPIED, names)
    connection.execute("ANALYZE copied")
    for table, columns, keys in _tables_of_nodes(connection):
        connection.execute(_copy_statement(table, columns, keys), names)
    for statement in (_COPY_TERMS, _COPY_POSTINGS):  # these refer to nodes without foreign keys
        connection.execute(statement, names)


def _tables_of_nodes(
    connection: psycopg.Connection[Row],
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Table, columns, columns that name a node; the nodes themselves first."""
    found = connection.execute(_COLUMNS).fetchone()
    assert found is not None  # noqa: S101 - an aggregate has a row
    yield "memory_node", found[0], ["sha256"]
    for table, columns, keys in connection.execute(_TABLES).fetchall():
        yield table, columns, [key for key in keys if key != "project"]


def _copy_statement(table: str, columns: list[str], keys: list[str]) -> sql.Composed:
    def value(column: str) -> sql.Composable:
        if column == "project":
            return sql.Placeholder("target")
        if column in keys:
            return sql.Identifier(f"of_{column}", "new")
        return sql.Identifier("held", column)

    joins = sql.SQL("").join(
        sql.SQL(" JOIN copied AS {alias} ON {alias}.old = held.{key}").format(
            alias=sql.Identifier(f"of_{key}"), key=sql.Identifier(key)
        )
        for key in keys
    )
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} AS held{joins}"
        " WHERE held.project = %(source)s ON CONFLICT DO NOTHING"
    ).format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        values=sql.SQL(", ").join(map(value, columns)),
        joins=joins,
    )
