"""Making the vectors that are missing: all of them for a new model, or those of single nodes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from workers.engines.build import token_model_in_use
from workers.errors import CannotReindex, EmbeddingServiceUnavailable
from workers.model import EmbeddingModel, Encoding, Missing, NodeKey, Refused, StoredModel, Vector
from workers.ports import Encoder
from workers.store.database import Database
from workers.store.models import PostgresModels
from workers.store.vector_backlog import START, PostgresVectorBacklog, Waiting
from workers.store.vector_indexes import VectorIndexes

BATCH = 64  # nodes encoded and stored in one transaction
ATTEMPTS = 6  # at one batch, before a server that fails is given up
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between them
ANALYZED_EACH = 4  # the number of vectors grew so many times: plans may have to change
LOOK_S = 0.2  # between two looks at nodes that another process has taken
COUNTED_S = 10.0  # between two counts of what waits, which others work on too
READ_S = 600.0  # nobody waits for one


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a batch."""

    taken: int
    encoded: int
    refused: int
    last: NodeKey


def fill(
    database: Database, encoder: Encoder, number: int, after: NodeKey = START, limit: int = BATCH
) -> Done:
    """Make the vectors of some nodes that have none of this model, in the order of their names.

    They are locked meanwhile, not claimed: if this process dies they are simply there again, and
    several processes share the work.

    Raises:
        EmbeddingServiceUnavailable: the model's server failed; nothing was stored.
        ModelMismatch: it makes vectors of another dimension.
    """
    with database.transaction() as connection:
        backlog = PostgresVectorBacklog(connection, number, encoder.token_model)
        taken = backlog.take(after, limit)
        if not taken:
            return Done(0, 0, 0, after)
        vectors, tokens, refused = _encode(encoder, taken)
        backlog.save(taken, vectors, tokens, refused)
    return Done(len(taken), len(vectors), len(refused), taken[-1].key)


def _encode(
    encoder: Encoder, taken: list[Waiting]
) -> tuple[dict[NodeKey, Vector], dict[NodeKey, bytes], dict[NodeKey, str]]:
    """Vectors of those that have none; token vectors only where they are missing as well."""
    texts = {one.key: one.text for one in taken if one.text is not None}
    has_tokens = {one.key for one in taken if one.has_tokens or encoder.token_model is None}
    bare = [key for key in texts if key not in has_tokens]
    rest = [key for key in texts if key in has_tokens]
    made: dict[NodeKey, Encoding | Vector | Refused] = {}
    made |= zip(bare, encoder.encode_passages([texts[key] for key in bare]), strict=True)
    made |= zip(rest, encoder.embed_passages([texts[key] for key in rest]), strict=True)
    vectors: dict[NodeKey, Vector] = {}
    tokens: dict[NodeKey, bytes] = {}
    refused: dict[NodeKey, str] = {}
    for key, one in made.items():
        if isinstance(one, Refused):
            refused[key] = one.reason
        elif isinstance(one, Encoding):
            vectors[key] = one.vector
            if one.tokens:
                tokens[key] = one.tokens
        else:
            vectors[key] = one
    return vectors, tokens, refused


class Reindex:
    """Bringing a memory to a model while another one answers; killed at any point, it goes on."""

    def __init__(
        self,
        database: Database,
        encoder: Encoder,
        exact_rows: int,
        told: Callable[[Missing], None],
        troubled: Callable[[str], None],
    ) -> None:
        """told: how far it is, now and then. troubled: why it waits."""
        self._database = database
        self._models = PostgresModels(database, READ_S)
        self._encoder = encoder
        self._exact_rows = exact_rows
        self._told = told
        self._troubled = troubled
        self.encoded = 0

    def run(self) -> StoredModel:
        """Until nothing is left to do, or no less comes in while it works.

        Every node that was there when the last look began then has its vector. Those that came
        since wait on the model's list, and are done after the switch.

        Raises:
            CannotReindex: the memory has no vectors, or the model was given up meanwhile.
            EmbeddingServiceUnavailable: the model's server fails, and goes on failing.
            ModelMismatch: it makes vectors of another dimension.
            StoreUnavailable: PostgreSQL does not answer.
        """
        target = self._models.register(self._encoder.model, self._encoder.token_model)
        number = target.number
        if target.listed_at is None and not target.is_active:
            self._models.list_missing(number)
        self._models.retry_refused(number)
        taken_before = float("inf")
        while True:
            began_at = self._models.time()
            taken = self._go_through(number)
            if 0 < taken <= taken_before / 2:
                taken_before = taken
                continue
            self._index(number, self._encoder.model)
            is_ready = self._models.save_ready(number, began_at)
            known = {one.number: one for one in self._models.list_models()}[number]
            if not known.is_wanted:
                raise CannotReindex(
                    "This model was given up meanwhile.", "Begin again if that was a mistake."
                )
            if is_ready or known.is_active:
                return known
            time.sleep(LOOK_S)

    def _go_through(self, number: int) -> int:
        """Once through all that nobody else works on; how many nodes that was."""
        taken, after, counted_at, analyzed_at = 0, START, float("-inf"), BATCH
        while True:
            if time.monotonic() - counted_at > COUNTED_S:
                missing, counted_at = self._models.count_missing(number), time.monotonic()
                left, refused = missing.waiting, missing.refused
            self._told(Missing(left, refused, missing.nodes))
            done = self._fill(number, after)
            if not done.taken:
                return taken
            taken += done.taken
            if taken >= analyzed_at:
                self._models.analyze()
                analyzed_at *= ANALYZED_EACH
            self.encoded += done.encoded
            left, refused = max(0, left - done.taken), refused + done.refused
            after = done.last

    def _fill(self, number: int, after: NodeKey) -> Done:
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return fill(self._database, self._encoder, number, after)
            except EmbeddingServiceUnavailable as error:
                if attempt == ATTEMPTS:
                    raise
                wait_s = min(LONGEST_PAUSE_S, max(pause_s, error.retry_after_s or 0.0))
                self._troubled(str(error))
                time.sleep(wait_s)
                pause_s *= 2
        raise AssertionError("the last attempt returns or raises")

    def _index(self, number: int, model: EmbeddingModel) -> None:
        """Large projects get their index before the switch; one that is built elsewhere later."""
        indexes = VectorIndexes(self._database, number, model.dimension)
        while projects := indexes.projects_to_index(self._exact_rows):
            for project in projects:
                if not indexes.build(project):
                    return


def drop(database: Database, model: StoredModel, told: Callable[[int], None]) -> int:
    """Remove what there is of a model that is not wanted; returns how many vectors that were.

    Stopped at any point, it is called again for the rest.
    """
    count = 0
    for _, gone in PostgresModels(database, READ_S).drop(model.number, token_model_in_use()):
        count += gone
        told(count)
    # One that is being built keeps its process from it; upkeep does it then.
    VectorIndexes(database, model.number, model.model.dimension).drop_orphans()
    return count
