"""A cross-encoder behind HTTP: TEI's `/rerank`, or `/v1/rerank` as Cohere and Jina have it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from redis import Redis

from workers.deadline import Deadline
from workers.engines.batching import BYTES_PER_TOKEN, Batches, cut
from workers.engines.http_calls import (
    BadAnswer,
    CallFailed,
    Limited,
    ModelServer,
    NoSlot,
    OutOfTime,
)
from workers.engines.minilm import well_formed
from workers.errors import DeadlineExceeded, NotReranked
from workers.model import Candidate, Question, Refused

Api = Literal["tei", "cohere"]
Scale = Literal["sigmoid", "logit", "percent"]

FEWEST, MOST = 15, 50  # candidates scored: each is a pass of the model
LARGEST_LOGIT = 36.0  # beyond it a sigmoid is 1 in float64, and different logits would be equal


class WrongScale(CallFailed):
    """A score outside of the scale that the server was said to have."""


class HttpReranker:
    """A client of a rerank server, shared by all threads. Implements `workers.ports.Reranker`."""

    needs_text = True

    def __init__(
        self,
        url: str,
        api_key: str | None,
        model: str,
        *,
        api: Api = "tei",
        scale: Scale = "sigmoid",
        depth: int = MOST,
        batch: int = 32,
        max_tokens: int = 512,
        concurrency: int = 4,
        client: Redis | None = None,
    ) -> None:
        """
        Args:
            url: of the server, with or without the path.
            depth: never score more candidates of a project than this; 0: none.
            batch: most texts of one request.
            max_tokens: what the model reads of question and text together.
            concurrency, client: as `ModelServer` has them.
        """
        self.name = model
        self.batch = batch
        self._api = api
        self._scale = scale
        self._depth = depth
        self._server = ModelServer(
            endpoint_of(url, api), api_key, kind="rerank", concurrency=concurrency, client=client
        )
        self._batches = Batches(batch)
        self._most_bytes = BYTES_PER_TOKEN * max_tokens

    def depth(self, limit: int) -> int:
        """Three times what is shown, within 15 and 50."""
        return min(self._depth, MOST, max(FEWEST, 3 * limit))

    def score(
        self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
    ) -> list[float | None]:
        """Scores in [0, 1]; None for what the server left out of its answer, or would not take.

        Raises:
            DeadlineExceeded: the deadline came first.
            NotReranked: the server failed, or there was no slot for it in time.
        """
        asked = cut(well_formed(question.text), self._most_bytes // 2)
        most_bytes = self._most_bytes - len(asked.encode())
        sent = {
            place: cut(well_formed(candidate.text), most_bytes)
            for place, candidate in enumerate(candidates)
            if candidate.text and not candidate.text.isspace()
        }
        try:
            found = self._batches.send(
                list(sent.values()), lambda texts: self._post(asked, texts, deadline)
            )
        except OutOfTime as error:
            raise DeadlineExceeded(str(error)) from error
        except (NoSlot, Limited) as error:
            raise NotReranked("rerank_limited", str(error)) from error
        except CallFailed as error:
            raise NotReranked("reranker_unavailable", str(error)) from error
        scores: list[float | None] = [None] * len(candidates)
        for place, score in zip(sent, found, strict=True):
            scores[place] = None if isinstance(score, Refused) else score
        return scores

    def _post(self, asked: str, texts: Sequence[str], deadline: Deadline) -> list[float | None]:
        body = {"query": asked, "texts": list(texts), "raw_scores": False, "truncate": True}
        if self._api == "cohere":
            body = {"model": self.name, "query": asked, "documents": list(texts)}
        return self._server.call(body, deadline, lambda answer: self._scores(answer, len(texts)))

    def _scores(self, answer: Any, count: int) -> list[float | None]:
        """Scores by index: answers come sorted by score, and may be only the best of them."""
        try:
            rows = [(int(row["index"]), _number(row)) for row in _rows(answer)]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._server.failed(
                BadAnswer,
                f"did not answer with scores by index; correct {self._server.setting('URL')} or"
                f" {self._server.setting('API')}",
            ) from error
        by_index = dict(rows)
        if not rows or len(by_index) != len(rows) or not set(by_index) <= set(range(count)):
            raise self._server.failed(
                BadAnswer, f"did not answer with one score for each of {count} texts; see its log"
            )
        return [
            self._scaled(by_index[index]) if index in by_index else None for index in range(count)
        ]

    def _scaled(self, value: float) -> float:
        if not math.isfinite(value):
            raise self._server.failed(BadAnswer, "answered with a score of NaN; see its log")
        low, high, scaled = _SCALES[self._scale]
        if not low <= value <= high:
            # Cut to the scale, many would be equal and their order lost.
            raise self._server.failed(
                WrongScale,
                f"answered with a score of {value:.6g}, which is not of the scale"
                f" {self._scale!r}; correct {self._server.setting('SCALE')}",
            )
        return scaled(value)


def endpoint_of(url: str, api: Api) -> str:
    """What is posted to, of a server whose address may hold a part of the path."""
    base = url.rstrip("/")
    if base.endswith("/rerank"):
        return base
    if api == "tei":
        return base + "/rerank"
    return base.removesuffix("/v1") + "/v1/rerank"


def _rows(answer: Any) -> list[Any]:
    if isinstance(answer, Mapping):
        answer = answer["results"] if "results" in answer else answer["data"]
    if not isinstance(answer, list):
        raise TypeError("no list of scores")
    return answer


def _number(row: Mapping[str, Any]) -> float:
    return float(row["score"] if "score" in row else row["relevance_score"])


def _sigmoid(x: float) -> float:
    # From the side that does not overflow.
    return math.exp(x) / (1 + math.exp(x)) if x < 0 else 1 / (1 + math.exp(-x))


_SCALES: dict[Scale, tuple[float, float, Callable[[float], float]]] = {
    "sigmoid": (0.0, 1.0, float),
    "logit": (-LARGEST_LOGIT, LARGEST_LOGIT, _sigmoid),
    "percent": (0.0, 100.0, lambda x: x / 100),
}
"""Per scale: its least and its largest value, and how one becomes a score in [0, 1]."""
