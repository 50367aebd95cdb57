"""`mem ingest`: hand files over for storing, and tell what became of every one of them."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_USAGE, CommandFailed
from app.cli.node_files import holds_nodes, read_nodes
from app.cli.paths import SESSION_ENDINGS, Found, Source, TooLarge, find_sources, name_of
from app.cli.render import Look
from app.cli.shell import (
    can_ask,
    connected,
    echo_json,
    format_option,
    infer_project,
    load_settings,
    note,
    use_color,
)
from app.cli.summary import exit_code, show_line, show_table
from app.cli.taking import (
    LARGEST,
    WAYS,
    Files,
    Nodes,
    Report,
    Submission,
    Taking,
    in_parts,
    progress_display,
    report_of,
    why_unreadable,
)

if TYPE_CHECKING:
    from app.client import Body, Client

SESSIONS = ("claude_code", "codex", "pi")
FORMS = ("auto", "nodes", *SESSIONS, "markdown", "text")


def _read_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from workers.naming import document_name

    if document_name(value) is None:
        said = f"{value!r} names no file; give a path such as notes/backup.md."
        raise click.BadParameter(said, context, parameter)
    return value


@click.command(
    epilog="""\b
Examples:
  mem ingest docs/ README.md -p poimen
  mem ingest --discover
  mem ingest notes.jsonl --as nodes -p poimen --no-wait

\b
In folders, .md, .markdown, .txt, .jsonl and .json are taken, also with .gz or .zst; hidden files
and what builds made are not. A file that is named itself is taken whatever it is called.
A session goes to --project, else to the project whose root folder holds its working directory,
else to one named after that directory. Everything else goes to --project, else to the project
whose root folder (mem projects add) holds the current directory.
A document is known by its path below its project's root folder, else below your home folder.
Storing it again replaces what has changed; what has not costs next to nothing.
Submissions that wait, run or failed: mem jobs list --ingest.
In a pipe: tab-separated file, status, format, and how many nodes were received, stored, updated,
unchanged and removed, lines skipped, secrets redacted. With --dry-run: file, status, format, and
how many sessions, turns, documents, sections and nodes it holds, lines skipped, things ignored.
Exit codes: 0 all stored; 1 every file failed, or the service did; 2 usage; 3 some files failed or
some lines were skipped, each is named on stderr."""
)
@click.argument("paths", metavar="PATH...", nargs=-1)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    help="What the files hold; auto: each is told by its content.",
)
@click.option("-p", "--project", help="Where to store it; nodes may name another.")
@click.option("--discover", is_flag=True, help="Take the sessions of the agents on this machine.")
@click.option("--yes", is_flag=True, help="With --discover: do not ask.")
@click.option("--dry-run", is_flag=True, help="Only tell what the files hold; needs no service.")
@click.option("--no-wait", is_flag=True, help="Print the jobs' ids and do not wait for their end.")
@click.option(
    "--name",
    default="stdin",
    show_default=True,
    callback=_read_name,
    help="What standard input is called.",
)
@format_option
@click.pass_context
def ingest(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    form: str,
    project: str | None,
    discover: bool,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    name: str,
    output: str,
) -> None:
    """Store sessions, documents and nodes from PATH... (files, folders; `-`: standard input)."""
    if bool(paths) == discover:
        said = "PATH... and --discover exclude each other." if paths else "name a PATH to store."
        raise click.UsageError(said, context)
    found = _discovered(form, project, output, asks=not (yes or dry_run)) if discover else None
    found = found or find_sources(paths)
    if dry_run:
        _dry_run(context, found, form, name, output)
    reports: list[Report] = []
    if found.sources:
        emit = _emit_lines(reports, output) if form == "nodes" else reports.append
        with connected() as client:
            plan = _Plan(client, form, project, name, emit)
            _take(client, plan, found.sources, waits=not no_wait)
    elif output == "text":
        note("Nothing to store.")
    if output == "json":
        echo_json({"files": reports, "passed_over": dict(found.passed_over)})
    elif form != "nodes":
        show_table(reports, Look.of(use_color("never")))
    if output == "text":
        tell_passed_over(found)
    context.exit(exit_code(reports))


def _emit_lines(reports: list[Report], output: str) -> Callable[[Report], None]:
    def emit(report: Report) -> None:
        reports.append(report)
        if output == "text":
            show_line(report)

    return emit


def tell_passed_over(found: Found) -> None:
    """What folders hold beside what is taken."""
    told = [f"{kind} {count}" for kind, count in sorted(found.passed_over.items())]
    if told:
        note(f"Passed over: {', '.join(told)}.")


def _take(client: "Client", plan: "_Plan", sources: Sequence[Source], *, waits: bool) -> None:
    with progress_display(len(sources)) as told:
        Taking(client, plan.emit, told, waits).run(plan.submissions(sources))


class _Plan:
    """Which files go where, in which requests."""

    def __init__(
        self,
        client: "Client",
        form: str,
        project: str | None,
        stdin_name: str,
        emit: Callable[[Report], None],
    ) -> None:
        self._client = client
        self._form = form
        self._project = project
        self._stdin_name = stdin_name
        self.emit = emit
        self._known: list[Body] | None = None

    def submissions(self, sources: Sequence[Source]) -> Iterator[Submission]:
        """
        Raises:
            CommandFailed: a project is needed, and cannot be inferred; nothing was sent yet.
        """
        if self._form == "nodes":
            yield from self._node_files(sources)
            return
        sessions = [source for source in sources if self._is_session(source)]
        documents = [source for source in sources if not self._is_session(source)]
        home = self._project or (self._inferred() if documents else None)
        yield from self._files(sessions, self._project)
        yield from self._files(self._told_apart(documents, home), home)

    def _told_apart(self, sources: Sequence[Source], project: str | None) -> list[Source]:
        """The documents without those that another one would be taken for: these are told."""
        first: dict[str, Source] = {}
        for source in sources:
            name = self._name(source, project)
            other = first.setdefault(name, source)
            if other is not source:
                reason = (
                    f"would replace {other.shown}: in this project both are called {name};"
                    " store it by `mem ingest - --name NAME`"
                )
                self.emit(report_of(source.shown, name=name, reason=reason))
        return list(first.values())

    def _is_session(self, source: Source) -> bool:
        if self._form == "auto":
            return source.path is not None and source.ending in SESSION_ENDINGS
        return self._form in SESSIONS

    def _files(self, sources: Sequence[Source], project: str | None) -> Iterator[Submission]:
        named = [(source, self._name(source, project)) for source in sources]
        nodes: list[Nodes] = []
        for part in in_parts(named, self._form, project, self.emit):
            kept = part if self._form != "auto" else self._without_nodes(part, nodes)
            if kept.size:
                yield kept
            yield from nodes
            nodes.clear()

    def _without_nodes(self, part: Files, nodes: list[Nodes]) -> Files:
        """The files that hold none; those that do are put into `nodes`."""
        kept = []
        for place, (source, data) in enumerate(zip(part.sources, part.contents, strict=True)):
            if not holds_nodes(data):
                kept.append(place)
                continue
            found = read_nodes(source.shown, io.BytesIO(data))
            homeless = any(not node.get("project") for node in found.nodes)
            try:
                project = self._project or (self._inferred() if homeless else None)
            except CommandFailed as error:
                reason = f"{error.message} {error.advice}"
                self.emit(report_of(source.shown, format="nodes", reason=reason))
                continue
            nodes.append(Nodes(found, project))
        return part.only(kept)

    def _node_files(self, sources: Sequence[Source]) -> Iterator[Nodes]:
        for source in sources:
            try:
                data = source.read(LARGEST)
            except (OSError, TooLarge) as error:
                self.emit(report_of(source.shown, format="nodes", reason=why_unreadable(error)))
                continue
            yield Nodes(read_nodes(source.shown, io.BytesIO(data)), self._project)

    def _name(self, source: Source, project: str | None) -> str:
        roots = [] if project is None else self._roots(project)
        return name_of(source, roots, self._stdin_name)

    def _roots(self, project: str) -> list[str]:
        own = [each for each in self._projects() if each["project"] == project]
        return [root for each in own for root in each.get("roots") or ()]

    def _inferred(self) -> str:
        return infer_project(self._projects(), WAYS)

    def _projects(self) -> "list[Body]":
        if self._known is None:
            self._known = self._client.list_projects()
        return self._known


def _dry_run(context: click.Context, found: Found, form: str, stdin_name: str, output: str) -> None:
    from app.cli.preview import Preview, show_previews

    settings = load_settings()
    preview = Preview(form, int(settings.ingest_max_mb * 1e6), stdin_name)
    reports: list[Report] = []
    with progress_display(len(found.sources)) as told:
        for done, source in enumerate(found.sources):
            told(done, f"reading {source.shown}")
            reports.append(preview.of(source))
    if output == "json":
        passed_over = dict(found.passed_over)
        echo_json({"dry_run": True, "files": reports, "passed_over": passed_over})
    else:
        show_previews(reports, Look.of(use_color("never")))
        tell_passed_over(found)
    context.exit(exit_code(reports))


def _discovered(form: str, project: str | None, output: str, *, asks: bool) -> Found:
    """
    Raises:
        CommandFailed: nobody is there to be asked, or said yes.
    """
    from app.cli.discover import agents_here, as_json, show_agents

    if form not in ("auto", *SESSIONS):
        raise click.UsageError(f"--discover finds sessions of {', '.join(SESSIONS)} only.")
    agents = [each for each in agents_here() if form in ("auto", each.form)]
    sources = [source for agent in agents for source in agent.sources]
    if output == "text" or can_ask():
        # What is shown is the result only where nothing follows.
        is_result = output == "text" and asks and not can_ask()
        show_agents(agents, project, to_stderr=not is_result)
    if sources and asks:
        _ask(len(sources), as_json(agents))
    return Found(sources)


def _ask(count: int, plan: "list[Body]") -> None:
    if not can_ask():
        problem: dict[str, Any] = {
            "type": "/problems/usage",
            "title": "Nobody is there to be asked.",
            "detail": "Add --yes to store them, or --dry-run to read them only.",
            "error": "usage",
        }
        raise CommandFailed(
            "nothing was stored: there is no terminal to ask at.",
            problem["detail"],
            code="usage",
            exits_with=EXIT_USAGE,
            problem={**problem, "found": plan},
        )
    if not click.confirm(f"Store {'it' if count == 1 else f'these {count}'}?", err=True):
        note("Nothing was stored.")
        raise click.exceptions.Exit(0)
