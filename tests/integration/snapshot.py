"""What an ingest made of the database, kept aside so that every test can start from it."""

from dataclasses import dataclass
from typing import Self

from psycopg import sql

from tests.integration.service import Service

# Parents before children of a foreign key. The counters follow by themselves: triggers keep them.
TABLES = (
    "project",
    "memory_node",
    "memory_edge",
    "node_vector",
    "node_tokens",
    "node_terms",
    "posting",
)


@dataclass(frozen=True)
class Snapshot:
    """Copies of the memory's tables in a schema of their own."""

    service: Service

    @classmethod
    def of(cls, service: Service) -> Self:
        with service.connect() as connection:
            connection.execute("DROP SCHEMA IF EXISTS snapshot CASCADE")
            connection.execute("CREATE SCHEMA snapshot")
            for table in TABLES:
                statement = "CREATE TABLE snapshot.{0} AS TABLE public.{0}"
                connection.execute(sql.SQL(statement).format(sql.Identifier(table)))
        return cls(service)

    def restore(self) -> None:
        with self.service.connect() as connection, connection.transaction():
            for table in TABLES:
                statement = "INSERT INTO public.{0} SELECT * FROM snapshot.{0}"
                connection.execute(sql.SQL(statement).format(sql.Identifier(table)))
