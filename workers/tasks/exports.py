"""Storing the lines of an export, under another project's name or with another model if need be."""

from collections.abc import Sequence

from workers import wiring
from workers.ingest.exported import (
    ExportedEnd,
    ExportedNode,
    ExportedProject,
    ExportedSource,
    node_of,
    read_lines,
)
from workers.ingest.parsed import Alive, Skipped
from workers.ingest.reading import expand
from workers.model import Node, ProjectName, Refused, Sha256
from workers.store.sources import PostgresSources
from workers.tasks.report import Beat, Report
from workers.tasks.saving import encode, lacks, save

BATCH = 128  # nodes stored in one transaction

Taken = tuple[ExportedNode, Node, int]
"""A node as it was told, as it is stored, and its line."""


def store_export(
    work: wiring.Ingest,
    project: ProjectName,
    data: bytes,
    report: Report,
    beat: Beat,
    alive: Alive,
) -> None:
    """Store what an export tells. Vectors of another model are made anew.

    Raises:
        Unreadable: its compression is damaged, or it expands too far.
    """
    report.format = "export"
    names: dict[str, Sha256] = {}
    batch: dict[Sha256, Taken] = {}
    last = told = 0
    is_whole = False
    for line in read_lines(expand(data, work.most_bytes, alive)):
        alive()
        last = line.number
        match line.record:
            case Skipped(reason=reason):
                told += 1  # a node that is told otherwise
                report.skip(line.number, reason)
            case ExportedProject() as own:
                with work.database.transaction() as connection:
                    PostgresSources(connection, project).save_exported_project(own)
            case ExportedSource() as source:
                with work.database.transaction() as connection:
                    work.nodes(connection).claim_projects([project])
                    PostgresSources(connection, project).save_exported(source)
            case ExportedEnd(nodes=nodes):
                if nodes != told:
                    report.skip(line.number, f"the export has {nodes} nodes, and {told} came")
                is_whole, told = True, 0
            case ExportedNode() as exported:
                is_whole, told = False, told + 1
                report.counts["received"] += 1
                try:
                    node = node_of(exported, project, names, work.encoder.model)
                except ValueError as error:
                    report.skip(line.number, str(error))
                    continue
                names[exported.id] = node.sha256
                batch[node.sha256] = (exported, node, line.number)
        if len(batch) == BATCH:
            _store(work, project, list(batch.values()), report, beat)
            batch = {}
    _store(work, project, list(batch.values()), report, beat)
    if not is_whole:
        report.skip(last, "the export was cut off here: its last line is missing")


def _store(
    work: wiring.Ingest, project: ProjectName, batch: Sequence[Taken], report: Report, beat: Beat
) -> None:
    beat(f"storing {report.name}: {report.counts['received']} nodes")
    while batch:
        encodings = encode(work, project, [node for _, node, _ in batch], beat)
        kept = [one for one in batch if not isinstance(encodings.get(one[1].sha256), Refused)]
        present = [node for _, node, _ in kept]
        with work.database.transaction() as connection:
            nodes = work.nodes(connection)
            nodes.claim_projects([project])
            if lacks(nodes, project, present, encodings):
                continue
            results = save(nodes, present, encodings)
            sources = PostgresSources(connection, project)
            sources.save_exported_instants(
                [(node.sha256, one) for one, node, _ in kept if results[node.key] == "stored"]
            )
            _save_turns(sources, kept)
        report.counts.update(results.values())
        for _, node, line in batch:
            if isinstance(refused := encodings.get(node.sha256), Refused):
                report.skip(line, f"cannot be embedded: {refused.reason}")
        return


def _save_turns(sources: PostgresSources, kept: Sequence[Taken]) -> None:
    """Turns of sources whose own line was not taken are stored, but not followed."""
    known = sources.known_sources({exported.source for exported, _, _ in kept})
    for source in sorted(known):
        turns = {
            key: node.sha256
            for exported, node, _ in kept
            if exported.source == source
            for key in exported.turns
        }
        if turns:
            sources.save_turns(source, turns)
