"""`mem reindex`: vectors of another model, while the present one answers."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from app.cli.database import open_database
from app.cli.failures import EXIT_PARTIAL, CommandFailed, plain
from app.cli.progress import PLAIN_LINE_S, interrupted, progress
from app.cli.shell import (
    echo_json,
    format_option,
    load_settings,
    note,
    store_failures,
)

if TYPE_CHECKING:
    from config.settings import Settings
    from workers.model import Missing, StoredModel

REFUSED_SHOWN = 20
REFUSED_SENT = 1_000  # in JSON


@dataclass(frozen=True, slots=True)
class Target:
    """The model to bring the memory to. url: of its server; None: the embedded one."""

    url: str | None
    model: str
    dimension: int

    @property
    def settings(self) -> str:
        """How workers are told to use it."""
        from app.client import without_password

        if self.url is None:
            return "without POIMEN_EMBEDDING_URL"
        return (
            f"with POIMEN_EMBEDDING_URL={without_password(self.url)}"
            f" POIMEN_EMBEDDING_MODEL={self.model} POIMEN_EMBEDDING_DIMENSION={self.dimension}"
        )


@click.command(
    epilog="""\b
Examples:
  mem reindex --url http://gpu:8080 --model BAAI/bge-m3 --dimension 1024
  mem reindex --to embedded
  mem reindex --drop-old

\b
Questions are answered by the present model until the workers are started with the settings of the
new one. Stop it at any time: the same command goes on where it was. Several at once share the work.
A server's key is read from POIMEN_EMBEDDING_API_KEY. With POIMEN_EMBEDDING_URL set, the model is
that of the settings where no option says otherwise.
It needs the database: POIMEN_DATABASE_URL, or a running `mem up`.
Exit codes: 0 ready; 1 failed; 3 ready, but the model makes no vector of some nodes."""
)
@click.option("--to", type=click.Choice(["embedded"]), help="The model that is installed here.")
@click.option("--url", help="The new model's server, OpenAI-compatible.")
@click.option("--model", help="The model asked of that server.")
@click.option("--dimension", type=click.IntRange(min=1), help="Length of its vectors.")
@click.option("--drop-old", is_flag=True, help="Remove the vectors of models that were replaced.")
@click.option("--cancel", is_flag=True, help="Give up what was begun, and remove it.")
@click.option("--yes", is_flag=True, help="Do not ask before removing.")
@format_option
@click.pass_context
def reindex(
    context: click.Context,
    /,
    to: str | None,
    url: str | None,
    model: str | None,
    dimension: int | None,
    drop_old: bool,
    cancel: bool,
    yes: bool,
    output: str,
) -> None:
    """Make the memory's vectors anew with another embedding model, while it answers."""
    settings = load_settings()
    named = [name for name, given in (("--to", to), ("--url", url)) if given]
    named += ["--drop-old"] * drop_old + ["--cancel"] * cancel
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} are different things; choose one.")
    if drop_old or cancel:
        _drop(settings, cancels=cancel, is_sure=yes, output=output)
        return
    target = _target(settings, to, url, model, dimension)
    context.exit(_reindex(settings, target, output))


def _target(
    settings: "Settings", to: str | None, url: str | None, model: str | None, dimension: int | None
) -> Target:
    if to is not None:
        if model or dimension:
            raise click.UsageError("--model and --dimension belong to --url.")
        return Target(None, "", 0)
    url = url or settings.embedding_url
    if url is None:
        raise click.UsageError("name the model: --to embedded, or --url, --model and --dimension.")
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("it begins with http:// or https://.", param_hint="--url")
    return Target(url, model or settings.embedding_model, dimension or settings.embedding_dimension)


def _reindex(settings: "Settings", target: Target, output: str) -> int:
    from app.wiring import list_refused
    from app.wiring import reindex as bring_to

    began_at = time.monotonic()
    with store_failures(), _own_failures():
        database = open_database()
        with interrupted(), progress("reindexing") as told:

            def tell(missing: "Missing") -> None:
                told(missing.nodes - missing.waiting - missing.refused, missing.nodes)

            found, missing, encoded = bring_to(
                database,
                settings,
                url=target.url,
                model=target.model,
                dimension=target.dimension,
                told=tell,
                troubled=lambda reason: note(f"{plain(reason)} Trying again."),
            )
        refused = list_refused(database, found.number, REFUSED_SENT) if missing.refused else []
    if output == "json":
        echo_json(
            {
                "model": found.model.name,
                "dimension": found.model.dimension,
                "status": "active" if found.is_active else "ready",
                "nodes": missing.nodes,
                "encoded": encoded,
                "waiting": missing.waiting,
                "refused": refused,
                "refused_count": missing.refused,
                "took_s": round(time.monotonic() - began_at, 3),
            }
        )
    else:
        _show(found, missing, encoded, refused, target)
    return EXIT_PARTIAL if missing.refused else 0


def _show(
    found: "StoredModel",
    missing: "Missing",
    encoded: int,
    refused: Sequence[dict[str, Any]],
    target: Target,
) -> None:
    for one in refused[:REFUSED_SHOWN]:
        place = f"{one['project']}/{one['sha256'][:12]}"
        note(f"{plain(place)}: cannot be embedded: {plain(one['reason'])}")
    if missing.refused > REFUSED_SHOWN:
        note(f"and {missing.refused - REFUSED_SHOWN:,} more cannot be embedded")
    state = "is the active model" if found.is_active else "is ready"
    lacking = f", {missing.refused:,} without a vector" if missing.refused else ""
    click.echo(
        f"{plain(str(found.model))} {state}: {missing.nodes:,} nodes,"
        f" {encoded:,} encoded now{lacking}"
    )
    if not found.is_active:
        note(f"To switch to it, start every worker {plain(target.settings)}")
        note("Once nothing works with the old model any more: mem reindex --drop-old")


@contextmanager
def _own_failures() -> Iterator[None]:
    """Failures of the new model's server, in the words of this command's options."""
    from workers.errors import CannotReindex, EmbeddingServiceUnavailable, ModelMismatch

    try:
        yield
    except CannotReindex as error:
        raise CommandFailed(error.reason, error.advice, code="cannot_reindex") from error
    except EmbeddingServiceUnavailable as error:
        raise CommandFailed(
            str(error),
            "Mend that, then give the same command again: it goes on where it was.",
            code=error.code,
        ) from error
    except ModelMismatch as error:
        raise CommandFailed(
            str(error),
            "Correct --model or --dimension, then give the command again.",
            code=error.code,
        ) from error


def _drop(settings: "Settings", *, cancels: bool, is_sure: bool, output: str) -> None:
    """Remove what is left of models that nothing works with, or of one that was begun."""
    from app.wiring import drop_model, give_up_model, list_models

    with store_failures():
        database = open_database()
        known, to_drop = list_models(database)
        if cancels:
            to_drop = [one for one in known if one.is_wanted and not one.is_active]
        else:
            _check_workers(settings, known)
        counts = {one.model.name: 0 for one in to_drop}
        if to_drop:
            names = ", ".join(plain(str(one.model)) for one in to_drop)
            if not is_sure:
                if not cancels:
                    note("Workers that still run with it would find nothing.")
                click.confirm(f"Remove the vectors of {names}?", abort=True, err=True)
        for one in to_drop:
            if cancels:
                give_up_model(database, one.number)
            with interrupted(), _removal(one.model.name) as told:
                counts[one.model.name] = drop_model(database, one, told)
    if output == "json":
        echo_json({"dropped": [{"model": name, "vectors": n} for name, n in counts.items()]})
        return
    for name, count in counts.items():
        click.echo(f"{plain(name)}: {count:,} vectors removed")
    if not counts:
        note("There is nothing to remove.")


@contextmanager
def _removal(name: str) -> Iterator[Callable[[int], None]]:
    next_at = time.monotonic() + PLAIN_LINE_S

    def told(count: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + PLAIN_LINE_S
            note(f"{plain(name)}: {count:,} vectors removed")

    yield told


def _check_workers(settings: "Settings", known: "Sequence[StoredModel]") -> None:
    """Refuse while a worker answers by another model's vectors, as far as can be seen from here."""
    from app.local.state import read_state
    from app.wiring import live_workers

    here = read_state(settings.data_dir)
    secret = settings.redis_url
    redis_url = secret.get_secret_value() if secret else here.redis_url if here else None
    active = next((one.model.name for one in known if one.is_active), None)
    if redis_url is None or active is None:
        return
    others = [
        str(worker["name"])
        for worker in live_workers(redis_url)
        if worker.get("embedder", active) != active
    ]
    if others:
        raise CommandFailed(
            f"{', '.join(others)} still answers by the old vectors.",
            "Start it again with the settings of the new model first.",
            code="model_in_use",
        )
