"""Working through the files of an ingest job, each with an end of its own."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import structlog

from workers import wiring
from workers.errors import EmbeddingServiceUnavailable
from workers.ingest.drafts import Draft, Drafting, SourceDraft, sources_of
from workers.ingest.exported import ExportedEnd, ExportedNode, ExportedSource, node_of, read_lines
from workers.ingest.parsed import Parsed, Session, Skipped, Unreadable
from workers.ingest.reading import read_file
from workers.model import Encoding, Node, ProjectName, Refused, Sha256
from workers.naming import project_name
from workers.store.ingest_jobs import Claim, SubmittedFile
from workers.store.nodes import PostgresNodes
from workers.store.sources import PostgresSources

log = structlog.get_logger(__name__)

BATCH = 128  # turns encoded, then stored in one transaction
ENCODED = 64  # texts encoded between two signs of life
REFUSALS_SHOWN = 1000
EXPORT = "export"

Beat = Callable[[str], None]
"""Says what is being done, and that the work goes on; raises once it is no longer wanted."""


class NotTaken(Exception):
    """A file that cannot be stored. The message says why, fit to be shown."""


@dataclass(slots=True)
class Report:
    """What became of one file."""

    name: str
    format: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    unlisted: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    has_open_end: bool = False
    sources: list[dict[str, str]] = field(default_factory=list)
    reason: str | None = None

    def skip(self, line: int, reason: str) -> None:
        if len(self.skipped) < REFUSALS_SHOWN:
            self.skipped.append({"line": line, "reason": reason})
        else:
            self.unlisted += 1

    @property
    def status(self) -> str:
        if self.reason is not None:
            return "failed"
        return "partial" if self.skipped else "completed"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "format": self.format,
            **{name: self.counts[name] for name in _COUNTED},
            "skipped": self.skipped,
            "skipped_count": len(self.skipped) + self.unlisted,
            "ignored": dict(self.ignored),
            "redacted": dict(self.masked),
            "notes": list(self.notes),
            "has_open_end": self.has_open_end,
            "sources": self.sources,
        }


_COUNTED = ("received", "stored", "updated", "unchanged", "removed")


def take_file(work: wiring.Ingest, claim: Claim, file: SubmittedFile, beat: Beat) -> Report:
    """Read one file and store what it holds.

    Raises:
        EmbeddingServiceUnavailable, StoreUnavailable: it may be tried again.
    """
    report = Report(file.name)
    beat(f"reading {file.name}")
    if claim.format == EXPORT and claim.project is not None:
        _store_export(work, claim.project, file, report, beat)
        return report
    try:
        parsed, report.masked = read_file(
            file.data, file.name, claim.format, work.mask, work.most_bytes
        )
        _tell(report, parsed)
        drafting = Drafting(
            name=file.name,
            count=work.encoder.count_tokens,
            most_tokens=work.encoder.most_tokens,
            mask=work.mask,
            tool_output=work.tool_output,
            keeps_thinking=work.keeps_thinking,
        )

        def project_of(session: Session | None) -> ProjectName:
            return _project(work, claim, session)

        for project, draft in sources_of(parsed, drafting, project_of):
            report.sources.append({"project": project, "source": draft.source})
            _store_source(work, project, draft, report, beat)
        report.masked += drafting.masked
        report.ignored += drafting.ignored
    except (Unreadable, NotTaken) as error:
        report.reason = str(error)
    return report


def _tell(report: Report, parsed: Parsed) -> None:
    report.format = parsed.format
    report.ignored.update(parsed.ignored)
    report.notes = parsed.notes
    report.has_open_end = parsed.has_open_end
    report.unlisted = parsed.unlisted
    for skipped in parsed.skipped:
        report.skip(skipped.line, skipped.reason)


def _project(work: wiring.Ingest, claim: Claim, session: Session | None) -> ProjectName:
    """Where a session or a document is stored.

    Raises:
        NotTaken: nothing says where, or its submitter may not write there.
    """
    project = claim.project
    if project is None and session is not None and session.cwd is not None:
        with work.database.transaction() as connection:
            project = _project_of_folder(PostgresSources(connection, ""), session.cwd)
    if project is None:
        raise NotTaken("no project: name one, or tie one to its folder with mem projects add")
    if claim.scope is not None and project not in claim.scope:
        raise NotTaken(f"this key may not write to project {project!r}")
    return project


def _project_of_folder(sources: PostgresSources, folder: str) -> ProjectName | None:
    """The project with the nearest root above a folder, else one named after the folder.

    Two folders with the same name get two projects: the name of a folder above is put in front.
    """
    nearest = sources.project_above(folder)
    if nearest is not None:
        return nearest
    names = [project_name(name) for name in _names(folder)]
    known = sources.roots([name for name in names if name])
    for name in names:
        if name and not known.get(name):
            return name
    return None


def _names(folder: str) -> Iterator[str]:
    """What a folder's project may be called, the shortest first."""
    parts = [part for part in PurePosixPath(folder.replace("\\", "/")).parts if part != "/"]
    for length in range(1, len(parts) + 1):
        yield "-".join(parts[-length:])


def _store_source(
    work: wiring.Ingest, project: ProjectName, draft: SourceDraft, report: Report, beat: Beat
) -> None:
    report.counts["received"] += len(draft.drafts)
    if draft.session is None:
        _store_document(work, project, draft, report, beat)
    else:
        _store_session(work, project, draft, report, beat)


def _store_session(
    work: wiring.Ingest, project: ProjectName, draft: SourceDraft, report: Report, beat: Beat
) -> None:
    """Store what is new of a session, some turns at a time: a talk is of use from its first turn.

    A turn that the session it was forked from brought already is not stored again.
    """
    keys = [own.key for own in draft.drafts if own.key is not None]
    with work.database.transaction() as connection:
        known = PostgresSources(connection, project).find_turns(keys)
    own = [d for d in draft.drafts if known.get(d.key or "", (draft.source,))[0] == draft.source]
    report.counts["unchanged"] += len(draft.drafts) - len(own)
    before = report.counts["stored"]
    for start in range(0, len(own), BATCH):
        batch = own[start : start + BATCH]
        beat(f"storing {draft.source}: {start} of {len(own)}")
        encodings = _encoded(work, project, [each.node for each in batch], beat)
        kept = [each for each in batch if _is_kept(each, encodings, report)]
        with work.database.transaction() as connection:
            nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
            nodes.claim_projects([project])
            sources = PostgresSources(connection, project)
            sources.save_source(draft, report.name)
            _save(nodes, kept, encodings, report)
            turns = {each.key: each.node.sha256 for each in kept if each.key is not None}
            report.counts["removed"] += sources.save_turns(draft.source, turns)
    if report.counts["stored"] > before:
        # The file went on; what it no longer holds was taken back. An older copy of it is
        # shorter too, and brings nothing new.
        with work.database.transaction() as connection:
            sources = PostgresSources(connection, project)
            report.counts["updated"] += sources.abandon_others(draft.source, keys)


def _store_document(
    work: wiring.Ingest, project: ProjectName, draft: SourceDraft, report: Report, beat: Beat
) -> None:
    """Replace a document by its present version, all of it at once."""
    all_nodes = [own.node for own in draft.drafts]
    encodings = _encoded(work, project, all_nodes, beat)
    kept = [own for own in draft.drafts if _is_kept(own, encodings, report)]
    root = draft.drafts[0].node
    if not kept or kept[0].node is not root:
        raise NotTaken(f"its text cannot be embedded; {report.skipped[-1]['reason']}")
    with work.database.transaction() as connection:
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        nodes.claim_projects([project])
        sources = PostgresSources(connection, project)
        sources.save_source(draft, report.name)
        for start in range(0, len(kept), BATCH):
            beat(f"storing {draft.source}: {start} of {len(kept)}")
            _save(nodes, kept[start : start + BATCH], encodings, report)
        shas = [own.node.sha256 for own in kept]
        report.counts["removed"] += sources.drop_others(draft.source, root.sha256, shas)


def _encoded(
    work: wiring.Ingest, project: ProjectName, nodes: Sequence[Node], beat: Beat
) -> Mapping[Sha256, Encoding | Refused]:
    """The encodings of those that have no vector yet, outside of any transaction."""
    with work.database.transaction() as connection:
        store = PostgresNodes(connection, work.model, work.encoder.token_model)
        found = store.find_nodes(project, [node.sha256 for node in nodes])
    new = [node for node in nodes if not found.get(node.sha256, (None, False))[1]]
    encodings: dict[Sha256, Encoding | Refused] = {}
    for start in range(0, len(new), ENCODED):
        some = new[start : start + ENCODED]
        encoded = work.encoder.encode_passages([node.text for node in some])
        if len(encoded) != len(some):
            raise EmbeddingServiceUnavailable("The engine returned another number of vectors.")
        encodings |= {node.sha256: one for node, one in zip(some, encoded, strict=True)}
        beat(f"embedding {some[0].source}: {start + len(some)} of {len(new)}")
    return encodings


def _is_kept(own: Draft, encodings: Mapping[Sha256, Encoding | Refused], report: Report) -> bool:
    encoding = encodings.get(own.node.sha256)
    if not isinstance(encoding, Refused):
        return True
    span = own.node.span or {}
    line = span["start"] if span.get("unit") == "lines" else own.node.position or 0
    report.skip(line, f"cannot be embedded: {encoding.reason}")
    return False


def _save(
    nodes: PostgresNodes,
    drafts: Sequence[Draft],
    encodings: Mapping[Sha256, Encoding | Refused],
    report: Report,
) -> None:
    vectors = {
        own.node.key: encoding
        for own in drafts
        if isinstance(encoding := encodings.get(own.node.sha256), Encoding)
    }
    if drafts:
        results = nodes.save([own.node for own in drafts], vectors)
        report.counts.update(results.values())


def _store_export(
    work: wiring.Ingest, project: ProjectName, file: SubmittedFile, report: Report, beat: Beat
) -> None:
    """Store the lines of an export. Vectors of another model are made anew."""
    report.format = EXPORT
    model = work.encoder.model
    names: dict[str, Sha256] = {}
    batch: list[tuple[ExportedNode, Node, int]] = []
    is_whole = False
    for line in read_lines(file.data):
        match line.record:
            case Skipped(reason=reason):
                report.skip(line.number, reason)
            case ExportedSource():
                with work.database.transaction() as connection:
                    PostgresNodes(connection, work.model, None).claim_projects([project])
                    PostgresSources(connection, project).save_exported(line.record)
            case ExportedEnd():
                is_whole = True
            case ExportedNode() as exported:
                report.counts["received"] += 1
                try:
                    node = node_of(exported, project, names, model.name, model.dimension)
                except ValueError as error:
                    report.skip(line.number, str(error))
                    continue
                names[exported.id] = node.sha256
                batch.append((exported, node, line.number))
        if len(batch) == BATCH:
            _store_exported(work, project, batch, report, beat)
            batch = []
    _store_exported(work, project, batch, report, beat)
    if not is_whole:
        report.skip(line.number, "the export was cut off here: its last line is missing")


def _store_exported(
    work: wiring.Ingest,
    project: ProjectName,
    batch: Sequence[tuple[ExportedNode, Node, int]],
    report: Report,
    beat: Beat,
) -> None:
    beat(f"storing {report.name}: {report.counts['received']} nodes")
    bare = [node for _, node, _ in batch if node.embedding is None]
    encodings = _encoded(work, project, bare, beat)
    kept: list[tuple[ExportedNode, Node]] = []
    for exported, node, line in batch:
        encoding = encodings.get(node.sha256)
        if isinstance(encoding, Refused):
            report.skip(line, f"cannot be embedded: {encoding.reason}")
        else:
            kept.append((exported, node))
    if not kept:
        return
    with work.database.transaction() as connection:
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        nodes.claim_projects([project])
        _save(nodes, [Draft(node) for _, node in kept], encodings, report)
        sources = PostgresSources(connection, project)
        for exported, node in kept:
            if exported.turns:
                sources.save_turns(exported.source, dict.fromkeys(exported.turns, node.sha256))
