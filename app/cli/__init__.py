"""`mem`: the command line. Every command is imported only when it is run."""

import click

from app.cli.group import Mem

COMMANDS = {
    "query": ("app.cli.query:query", "Ask the memory a question."),
    "feedback": ("app.cli.feedback:feedback", "Say how good a hit is; see what others said."),
    "jobs": ("app.cli.jobs:jobs", "Follow, stop and cancel what runs in the background."),
    "ingest": ("app.cli.ingest:ingest", "Store sessions, documents and nodes from files."),
    "projects": ("app.cli.projects:projects", "List projects, or add one."),
    "sources": ("app.cli.sources:sources", "List the sessions and documents of a project."),
    "forget": ("app.cli.forget:forget", "Forget a node, a source or a project."),
    "export": ("app.cli.carry:export", "Write a project as JSON lines."),
    "import": ("app.cli.carry:import_command", "Store what `mem export` wrote."),
    "up": ("app.cli.up:up_command", "Start the whole service on this machine."),
    "demo": ("app.cli.demo:demo", "Start it, fill it from a file and ask it two questions."),
    "keys": ("app.cli.keys:keys", "Create, list and revoke API keys."),
    "migrate": ("app.cli.migrate:migrate_command", "Bring your own database up to date."),
    "verify": ("app.cli.verify:verify", "Check that everything stored can be traced."),
    "lexical": ("app.cli.lexical:lexical", "Analyse the memory's words anew."),
    "reindex": ("app.cli.reindex:reindex", "Bring the memory to another embedding model."),
    "bench": ("app.cli.bench:bench", "Measure what questions and storing cost."),
    "eval": ("app.cli.eval:eval_command", "Measure how well questions find what answers them."),
    "doctor": ("app.cli.doctor:doctor", "Check everything the service needs."),
}

OVERVIEW = """\
mem: a memory that is asked questions; every answer names where it came from.

  mem up                                                  start the service here
  mem ingest docs/ -p poimen                              store what is to be remembered
  mem query -p poimen "why did requests over 10KB fail?"  ask
  mem doctor                                              check what it needs

All commands: mem --help
"""


@click.group(
    cls=Mem,
    commands_at=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Exit codes:
  0 answered, also with no hit     3 partial
  1 failed                         4 sign in, or not allowed
  2 usage, or unknown project      5 a check did not pass
  124 the job is still running     130 Ctrl-C
  141 the reader of the pipe is gone

\b
Environment:
  POIMEN_URL, POIMEN_API_KEY       the service to speak to; unset: the one of `mem up`
  POIMEN_DATA_DIR                  where `mem up` keeps its state""",
)
@click.option("-v", "--verbose", is_flag=True, help="After a fault of `mem` itself, show where.")
@click.version_option(package_name="poimen-memory", prog_name="mem")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:  # noqa: ARG001 - read from the words
    """A memory for agents and people; every answer names where it came from."""
    if context.invoked_subcommand is None:
        click.echo(OVERVIEW, nl=False)
