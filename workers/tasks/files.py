"""Working through the files of an ingest job, each with an end of its own."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from workers import wiring
from workers.deadline import Clock
from workers.ingest.drafts import (
    Draft,
    Drafting,
    KnownTurn,
    Plan,
    SourceDraft,
    plan_of,
    sources_of,
)
from workers.ingest.parsed import Parsed, Session, Unreadable
from workers.ingest.reading import read_file
from workers.model import Encoding, ProjectName, Refused, Sha256
from workers.naming import project_name
from workers.store.ingest_jobs import Claim, SubmittedFile, UnreadablePayload
from workers.store.sources import PostgresSources
from workers.tasks.exports import store_export
from workers.tasks.report import Beat, Report, now_and_then
from workers.tasks.saving import encode, lacks, save

BATCH = 128  # turns encoded, then stored in one transaction
EXPORT = "export"
SAME_NAME = (
    "a file before it in this submission has the same name, and would be replaced by it;"
    " send each document under a name of its own"
)


class NotTaken(Exception):
    """A file that cannot be stored. The message says why, fit to be shown."""


def take_file(
    work: wiring.Ingest,
    claim: Claim,
    file: SubmittedFile,
    report: Report,
    beat: Beat,
    clock: Clock = time.monotonic,
) -> None:
    """Read one file and store what it holds.

    Raises:
        EmbeddingServiceUnavailable, StoreUnavailable: it may be tried again.
    """
    stage = f"reading {file.name}"
    beat(stage)
    alive = now_and_then(beat, stage, clock)
    try:
        data = file.read()
        if claim.format == EXPORT and claim.project is not None:
            store_export(work, claim.project, data, report, beat, alive)
            return
        parsed, report.masked = read_file(
            data, file.name, claim.format, work.mask, work.most_bytes, alive
        )
        _tell(report, parsed)
        drafting = Drafting(
            name=file.name,
            count=work.encoder.count_tokens,
            most_tokens=work.encoder.most_tokens,
            mask=work.mask,
            tool_output=work.tool_output,
            keeps_thinking=work.keeps_thinking,
            alive=alive,
        )

        def project_of(session: Session | None) -> ProjectName:
            return _project(work, claim, session)

        for project, draft in sources_of(parsed, drafting, project_of):
            if draft.session is None:
                _check_name(work, claim, file)
            report.sources.append({"project": project, "source": draft.source})
            _store_source(work, project, draft, report, beat)
        report.masked += drafting.masked
        report.ignored += drafting.ignored
    except UnreadablePayload as error:
        report.reason = f"the stored submission cannot be read ({error})"
    except (Unreadable, NotTaken) as error:
        report.reason = str(error)


def _tell(report: Report, parsed: Parsed) -> None:
    report.format = parsed.format
    report.ignored.update(parsed.ignored)
    report.notes = parsed.notes
    report.has_open_end = parsed.has_open_end
    report.unlisted = parsed.unlisted
    for skipped in parsed.skipped:
        report.skip(skipped.line, skipped.reason)


def _check_name(work: wiring.Ingest, claim: Claim, file: SubmittedFile) -> None:
    """
    Raises:
        NotTaken: a document before it in the submission has its name. Which of them would stay
            would be chance, as a file that is tried again comes after the others.
    """
    if work.jobs.has_namesake(claim, file):
        raise NotTaken(SAME_NAME)


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
    others = sources.projects_of_others([name for name in names if name], folder)
    return next((name for name in names if name and name not in others), None)


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
    """Store what is new of a session, some turns at a time: a talk is of use from its first."""
    if not draft.drafts:
        return
    keys = [own.key for own in draft.drafts if own.key is not None]
    results: dict[str, str] = {}
    while True:
        with work.database.transaction() as connection:
            sources = PostgresSources(connection, project)
            known = sources.turns_of(draft.source, keys)
            plan = plan_of(draft, known, sources.texts_of)
        if _store_plan(work, project, draft, (known, plan), results, report, beat):
            break
    report.counts.update(results.values())
    report.counts["unchanged"] += plan.unchanged


def _store_plan(
    work: wiring.Ingest,
    project: ProjectName,
    draft: SourceDraft,
    planned: tuple[Mapping[str, KnownTurn], Plan],
    results: dict[str, str],
    report: Report,
    beat: Beat,
) -> bool:
    """Store what is planned; False once something else is known than it was planned for."""
    known, plan = planned
    # An older copy is only remembered to be one.
    told = draft if plan.drafts else replace(draft, title=None)
    for start in range(0, max(1, len(plan.drafts)), BATCH):
        batch = plan.drafts[start : start + BATCH]
        beat(f"storing {draft.source}: {start} of {len(plan.drafts)}")
        encodings = encode(work, project, [own.node for own in batch], beat)
        kept = [own for own in batch if _is_kept(own, encodings, report, results)]
        turns = {own.key: own.node.sha256 for own in kept if own.key is not None}
        asked = [own.key for own in batch if own.key is not None]
        seen = {key: (known[key].source, known[key].sha256) for key in asked if key in known}
        with work.database.transaction() as connection:
            nodes = work.nodes(connection)
            nodes.claim_projects([project])
            sources = PostgresSources(connection, project)
            whole = [own.node for own in kept]
            if sources.find_turns(asked) != seen or lacks(nodes, project, whole, encodings):
                return False
            sources.save_source(told, report.name)
            report.counts["updated"] += sources.abandon(plan.abandoned)
            saved = save(nodes, whole, encodings)
            report.counts["removed"] += sources.save_turns(draft.source, turns)
            for first in turns.keys() & plan.surplus.keys():
                gone = sources.drop_parts(plan.surplus[first], turns[first])
                report.counts["removed"] += gone
        for key, sha256 in turns.items():
            if results.get(key, "unchanged") == "unchanged":
                results[key] = saved[project, sha256]
    return True


def _store_document(
    work: wiring.Ingest, project: ProjectName, draft: SourceDraft, report: Report, beat: Beat
) -> None:
    """Replace a document by its present version, all of it at once."""
    root, *chunks = (own.node for own in draft.drafts)
    while True:
        encodings = encode(work, project, [root, *chunks], beat)
        if isinstance(refused := encodings.get(root.sha256), Refused):
            raise NotTaken(f"its text cannot be embedded: {refused.reason}")
        kept = [n for n in (root, *chunks) if not isinstance(encodings.get(n.sha256), Refused)]
        with work.database.transaction() as connection:
            nodes = work.nodes(connection)
            nodes.claim_projects([project])
            if lacks(nodes, project, kept, encodings):
                continue
            sources = PostgresSources(connection, project)
            sources.save_source(draft, report.name)
            results: Counter[str] = Counter()
            for start in range(0, len(kept), BATCH):
                beat(f"storing {draft.source}: {start} of {len(kept)}")
                batch = kept[start : start + BATCH]
                results.update(save(nodes, batch, encodings).values())
            results["removed"] = sources.drop_others(draft.source, root, kept[1:])
            break
    report.counts += results
    for own in draft.drafts:
        _is_kept(own, encodings, report, {})


def _is_kept(
    own: Draft,
    encodings: Mapping[Sha256, Encoding | Refused],
    report: Report,
    results: dict[str, str],
) -> bool:
    """Whether a node can be stored; if not, that is reported, once."""
    encoding = encodings.get(own.node.sha256)
    if not isinstance(encoding, Refused):
        return True
    if results.setdefault(own.key or "", "refused") == "refused":
        span = own.node.span or {}
        line = span["start"] if span.get("unit") == "lines" else own.node.position or 0
        report.skip(line, f"cannot be embedded: {encoding.reason}")
    return False
