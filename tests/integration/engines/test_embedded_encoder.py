import random
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from workers.deadline import Deadline
from workers.engines.build import build_cached_encoder, build_encoder, build_reranker
from workers.engines.encoders import EmbeddedEncoder
from workers.engines.late_interaction import STOP_WORDS, WIDTH, stop_ids
from workers.engines.minilm import MAX_PADDED_TOKENS, MAX_TOKENS, MODEL, MiniLM, Reading
from workers.engines.projection import PROJECTION_SHA256, TOKEN_MODEL, load_projection
from workers.errors import EmbeddingServiceUnavailable
from workers.model import Candidate, Encoding, Level, Question

POD = "How do I restart a failed pod?"
POD_ANSWER = "Delete the failed pod and the controller starts a new one."
CAKE = "How much sugar does the cake need?"
CAKE_ANSWER = "The cake needs four eggs and a cup of sugar."
HIKE = "Maria: I went hiking last weekend and the view was so nice!"

ODD = [
    "",
    " \n\t",
    "\x00",
    "a\x00b",
    "\ud800",
    "half \udfff a pair",
    "😀😀",
    "日本語の文章",
    "\u200b\u200d",
    "x" * 5000,
    "the of and",
    "?!",
    "\ufffd" * 3,
    "e\u0301" * 50,
    "#" * 400,
]


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def encoder() -> EmbeddedEncoder:
    built = build_encoder(url=None, api_key=None, model="unused", dimension=1)
    assert isinstance(built, EmbeddedEncoder)
    return built


def ask(encoder: EmbeddedEncoder, text: str) -> Encoding:
    return encoder.encode_query(text, Deadline.after(60))


def candidates(
    encoder: EmbeddedEncoder, question: Encoding, texts: Sequence[str]
) -> list[Candidate]:
    return [
        Candidate(
            sha256=f"{index:064x}",
            level=Level.L0,
            distance=1 - float(question.vector @ passage.vector),
            text_length=len(text),
            tokens=passage.tokens,
        )
        for index, (text, passage) in enumerate(
            zip(texts, encoder.encode_passages(texts), strict=True)
        )
    ]


def rerank(asked: Encoding, found: Sequence[Candidate]) -> list[float | None]:
    return build_reranker().score(Question(POD, asked), found, Deadline.after(60))


def scores(encoder: EmbeddedEncoder, question: str, texts: Sequence[str]) -> list[float]:
    asked = ask(encoder, question)
    found = rerank(asked, candidates(encoder, asked, texts))
    return [score for score in found if score is not None]


def many_texts() -> list[str]:
    words = ["pod", "node", "index", "query", "worker", "redis", "restart", "memory", "the", "of"]
    chance = random.Random(5)
    lengths = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 400] * 2
    return [" ".join(chance.choices(words, k=length)) for length in lengths]


def test_texts_of_one_subject_are_nearer_than_texts_of_two(encoder: EmbeddedEncoder) -> None:
    pod, cake = ask(encoder, POD).vector, ask(encoder, CAKE).vector
    about_pod, about_cake = (
        one.vector for one in encoder.encode_passages([POD_ANSWER, CAKE_ANSWER])
    )

    assert pod @ about_pod > 0.6 > 0.3 > pod @ about_cake
    assert cake @ about_cake > 0.6 > 0.3 > cake @ about_pod


@pytest.mark.parametrize(
    ("question", "is_understood"),
    [
        (POD, True),
        ("where is the backup of 财务?", True),
        ("财务", False),
        ("backup 财务", False),
        ("", True),
    ],
)
def test_a_question_of_words_that_the_model_does_not_know_is_not_understood(
    encoder: EmbeddedEncoder, question: str, is_understood: bool
) -> None:
    asked = ask(encoder, question)

    assert asked.is_understood is is_understood
    assert (asked.tokens is not None) is is_understood


def test_the_model_is_the_one_whose_vectors_are_stored(encoder: EmbeddedEncoder) -> None:
    # Values of the published weights; another file, pooling or tokenizer would move them.
    vector = ask(encoder, POD).vector

    assert vector[:4] == pytest.approx([0.0888, -0.0369, 0.0588, -0.0106], abs=0.005)
    assert (encoder.model.dimension, vector.dtype) == (384, np.float32)
    assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-6)


def test_the_names_of_both_models_follow_from_their_files(encoder: EmbeddedEncoder) -> None:
    assert encoder.model == MODEL
    assert MODEL.sha256 is not None
    assert encoder.token_model == TOKEN_MODEL
    assert MODEL.sha256[:8] in TOKEN_MODEL
    assert PROJECTION_SHA256[:8] in TOKEN_MODEL


def test_the_projection_turns_and_cuts_but_does_not_stretch() -> None:
    projection = load_projection()

    assert projection.shape == (384, WIDTH)
    assert projection.T @ projection == pytest.approx(np.eye(WIDTH), abs=1e-2)


def test_a_text_is_encoded_the_same_alone_and_in_any_batch(encoder: EmbeddedEncoder) -> None:
    texts = many_texts()

    together = encoder.encode_passages(texts)
    backwards = encoder.encode_passages(texts[::-1])[::-1]
    alone = [encoder.encode_passages([text])[0] for text in texts]

    for one, other, third in zip(together, backwards, alone, strict=True):
        assert one.vector.tobytes() == other.vector.tobytes() == third.vector.tobytes()
        assert one.tokens == other.tokens == third.tokens


def test_threads_that_share_the_session_get_what_one_thread_gets(encoder: EmbeddedEncoder) -> None:
    texts = many_texts()
    expected = [ask(encoder, text) for text in texts]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: ask(encoder, text), texts * 3))

    for one, other in zip(expected * 3, found, strict=True):
        assert one.vector.tobytes() == other.vector.tobytes()
        assert one.tokens == other.tokens


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_any_string_can_be_asked_stored_and_compared(encoder: EmbeddedEncoder, text: str) -> None:
    question, (passage,) = ask(encoder, text), encoder.encode_passages([text])

    assert np.isfinite(question.vector).all()
    assert question.vector.tobytes() == passage.vector.tobytes()
    assert all(0 <= score <= 1 for score in scores(encoder, text, [text, POD_ANSWER, ""]))


def test_odd_texts_do_not_disturb_their_neighbours(encoder: EmbeddedEncoder) -> None:
    mixed = encoder.encode_passages([*ODD, POD_ANSWER])

    assert mixed[-1].tokens == encoder.encode_passages([POD_ANSWER])[0].tokens


def test_nothing_to_encode_is_nothing_encoded(encoder: EmbeddedEncoder) -> None:
    assert encoder.encode_passages([]) == []


def test_a_long_text_is_read_up_to_the_models_limit(minilm: MiniLM) -> None:
    page = "the pod restarts and the node drains " * 100

    reading = minilm.read(page)

    assert len(reading.token_ids) == MAX_TOKENS - 2
    assert reading.states.shape == (MAX_TOKENS - 2, 384)
    assert reading.vector.tobytes() == minilm.read(page + "unread " * 10_000).vector.tobytes()


def test_no_run_exceeds_its_bound_of_padded_tokens() -> None:
    runs: list[int] = []

    class Watched(MiniLM):
        def _run(self, tokenized: Sequence[list[int]]) -> Iterator[Reading]:
            runs.append(len(tokenized) * max(len(ids) for ids in tokenized))
            return super()._run(tokenized)

    lengths = Watched().read_each(many_texts() * 2, lambda reading: len(reading.token_ids))

    assert len(lengths) == 2 * len(many_texts())
    assert len(runs) > 1
    assert max(runs) <= MAX_PADDED_TOKENS


def test_every_stop_word_is_one_token_of_the_vocabulary(minilm: MiniLM) -> None:
    assert len(stop_ids(minilm)) == len(STOP_WORDS)
    with pytest.raises(KeyError, match="notaword"):
        minilm.token_id("notaword")


def test_stop_words_take_no_room(encoder: EmbeddedEncoder) -> None:
    bare, wordy = encoder.encode_passages(["restart pod", "so do restart the pod, will you?"])

    assert bare.tokens is not None
    assert wordy.tokens is not None
    assert len(bare.tokens) == len(wordy.tokens) == 2 * WIDTH


def test_the_passage_that_answers_scores_high_and_the_others_low(encoder: EmbeddedEncoder) -> None:
    answer, cake, hike = scores(encoder, POD, [POD_ANSWER, CAKE_ANSWER, HIKE])

    assert answer > 0.8
    assert max(cake, hike) < 0.2


def test_swapping_the_texts_swaps_the_scores(encoder: EmbeddedEncoder) -> None:
    one_way = scores(encoder, POD, [POD_ANSWER, CAKE_ANSWER])

    assert scores(encoder, POD, [CAKE_ANSWER, POD_ANSWER]) == one_way[::-1]
    assert scores(encoder, CAKE, [CAKE_ANSWER, POD_ANSWER])[0] > 0.8


def test_real_scores_do_not_depend_on_the_other_candidates(encoder: EmbeddedEncoder) -> None:
    asked = ask(encoder, "why does the worker restart before the deadline")
    found = candidates(encoder, asked, [*many_texts(), *ODD])
    together = rerank(asked, found)
    order = random.Random(3).sample(range(len(found)), len(found))

    assert rerank(asked, [found[index] for index in order]) == [together[index] for index in order]
    assert rerank(asked, found[::3]) == together[::3]
    assert [rerank(asked, [one])[0] for one in found] == together


def test_a_question_is_not_encoded_once_its_time_is_over(encoder: EmbeddedEncoder) -> None:
    with pytest.raises(EmbeddingServiceUnavailable, match="No time was left"):
        encoder.encode_query(POD, Deadline.after(0))


def test_a_remembered_question_reranks_as_a_fresh_one(encoder: EmbeddedEncoder) -> None:
    cached = build_cached_encoder(encoder, redis_url=None, entries=8, lifetime_s=60)

    first = cached.encode_query(POD, Deadline.after(60))
    again, origin = cached.encode_query_with_origin(POD, Deadline.after(60))

    assert origin == "memory"
    assert again.tokens == first.tokens == ask(encoder, POD).tokens


def test_a_cache_without_its_redis_still_answers(encoder: EmbeddedEncoder) -> None:
    with socket.socket() as reserved:  # bound and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{reserved.getsockname()[1]}/0"
        cached = build_cached_encoder(encoder, redis_url=url, entries=8, lifetime_s=60)

        found, origin = cached.encode_query_with_origin(POD, Deadline.after(60))

    assert origin == "miss"
    assert found.tokens == ask(encoder, POD).tokens


def test_without_an_embedded_reranker_vectors_are_the_same_and_no_tokens_are_made(
    encoder: EmbeddedEncoder,
) -> None:
    bare = build_encoder(url=None, api_key=None, model="unused", dimension=1, has_tokens=False)

    question, (passage,) = bare.encode_query(POD, Deadline.after(60)), bare.encode_passages([POD])

    assert (bare.model, bare.token_model) == (encoder.model, None)
    assert isinstance(passage, Encoding)
    assert (question.tokens, passage.tokens) == (None, None)
    assert question.vector.tobytes() == ask(encoder, POD).vector.tobytes()
