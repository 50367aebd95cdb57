import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.deadline import Deadline
from workers.engines.build import build_encoder
from workers.engines.encoders import HttpEncoder
from workers.engines.http_embedder import HttpEmbedder
from workers.errors import EmbeddingServiceUnavailable, ModelMismatch
from workers.model import Refused

KEY = "sk-not-to-be-shown"
TEXT = "why does the pod restart"
NOMIC = "nomic-ai/nomic-embed-text-v2-moe"

Answer = Callable[[list[str]], tuple[int, bytes]]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0]


def as_body(vectors: list[list[float]]) -> tuple[int, bytes]:
    rows = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return 200, json.dumps({"data": rows}).encode()


def honest(texts: list[str]) -> tuple[int, bytes]:
    return as_body([vector_of(text) for text in texts])


class Server(ThreadingHTTPServer):
    """An embedding server whose answers a test chooses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = honest
        self.headers: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that gave up is what tests are for
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(
            {"path": self.path, "authorization": self.headers["Authorization"], **body}
        )
        status, content = self.server.answer(body["input"])
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if status == 302:
            self.send_header("Location", "/v1/embeddings")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def embedder(url: str, model: str = "plain-model", key: str | None = KEY) -> HttpEmbedder:
    return HttpEmbedder(url, key, model, dimension=3)


def soon() -> Deadline:
    return Deadline.after(30)


def failure(server: Server, answer: Answer) -> str:
    server.answer = answer
    with pytest.raises(EmbeddingServiceUnavailable) as caught:
        embedder(server.url).embed_query(TEXT, soon())
    message = str(caught.value)
    assert message.endswith(".")
    assert "; " in message, "says what to do next"
    assert KEY not in message
    assert TEXT not in message
    return message


def test_a_question_comes_back_as_a_unit_vector(server: Server) -> None:
    vector = embedder(server.url).embed_query(TEXT, soon())

    expected = np.array(vector_of(TEXT)) / np.linalg.norm(vector_of(TEXT))
    assert vector.dtype == np.float32
    assert vector == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_be_given_with_or_without_v1(server: Server, suffix: str) -> None:
    embedder(server.url + suffix).embed_query(TEXT, soon())

    (request,) = server.requests
    assert request["path"] == "/v1/embeddings"
    assert request["model"] == "plain-model"
    assert request["input"] == [TEXT]
    assert request["authorization"] == f"Bearer {KEY}"


def test_without_a_key_no_credential_is_sent_not_even_from_netrc(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    embedder(server.url, key=None).embed_query(TEXT, soon())

    assert server.requests[0]["authorization"] is None


def test_nomic_models_are_told_questions_from_passages(server: Server) -> None:
    nomic = embedder(server.url, NOMIC)

    nomic.embed_query("q", soon())
    nomic.embed_passages(["p"])

    assert [request["input"] for request in server.requests] == [
        ["search_query: q"],
        ["search_document: p"],
    ]


def test_passages_go_out_in_batches_and_come_back_in_order(server: Server) -> None:
    texts = ["x" * length for length in range(1, 71)]

    vectors = embedder(server.url).embed_passages(texts)

    assert [len(request["input"]) for request in server.requests] == [32, 32, 6]
    ratios = [float(vector[0] / vector[1]) for vector in vectors]
    assert ratios == pytest.approx(list(range(1, 71)), rel=1e-5)


def test_vectors_sent_out_of_order_are_put_back_by_index(server: Server) -> None:
    def backwards(texts: list[str]) -> tuple[int, bytes]:
        status, content = honest(texts)
        return status, json.dumps({"data": json.loads(content)["data"][::-1]}).encode()

    server.answer = backwards
    vectors = embedder(server.url).embed_passages(["a", "bb", "ccc"])

    assert [float(vector[0] / vector[1]) for vector in vectors] == pytest.approx([1, 2, 3])


def test_text_that_utf8_cannot_carry_is_still_sent(server: Server) -> None:
    embedder(server.url).embed_query("a\ud800\x00b", soon())

    assert server.requests[0]["input"] == ["a\ufffd\x00b"]


def test_a_vector_of_another_length_names_the_setting(server: Server) -> None:
    said = failure(server, lambda texts: as_body([[1.0, 2.0]]))

    assert "dimension 2, the store has 3" in said
    assert "POIMEN_EMBEDDING_DIMENSION" in said


@pytest.mark.parametrize(
    "vector", [[0.0, 0.0, 0.0], [float("nan"), 1.0, 1.0], [float("inf"), 1.0, 1.0]]
)
def test_a_vector_without_a_direction_is_refused(server: Server, vector: list[float]) -> None:
    assert "no usable vector" in failure(server, lambda texts: as_body([vector]))


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_vectors_is_refused(server: Server, count: int) -> None:
    assert "vectors" in failure(server, lambda texts: as_body([[1.0, 2.0, 3.0]] * count))


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b'{"error": "busy"}',
        b'{"data": 3}',
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 0, "embedding": "abc"}]}',
        b'{"data": [{"index": 0, "embedding": [[1], [2, 3]]}]}',
        b'{"data": [{"index": 0, "embedding": 5}]}',
        b'{"data": [{"index": 1, "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": Infinity, "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2, 1%s]}]}' % (b"0" * 400),
        b"<html>",
        b"",
    ],
)
def test_anything_but_an_embedding_answer_is_refused(server: Server, body: bytes) -> None:
    assert "answer" in failure(server, lambda texts: (200, body))


def test_an_error_status_is_reported_by_number(server: Server) -> None:
    assert "HTTP 500; see its log" in failure(server, lambda texts: (500, b"boom"))


def test_a_refused_key_names_the_setting(server: Server) -> None:
    assert "POIMEN_EMBEDDING_API_KEY" in failure(server, lambda texts: (401, b""))


def test_the_key_does_not_follow_a_redirect(server: Server) -> None:
    assert "HTTP 302" in failure(server, lambda texts: (302, b""))
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_names_the_setting(server: Server) -> None:
    gone = Server()
    gone.server_close()

    with pytest.raises(EmbeddingServiceUnavailable, match="POIMEN_EMBEDDING_URL") as caught:
        embedder(f"http://user:hidden@127.0.0.1:{gone.server_port}").embed_query(TEXT, soon())

    assert f"127.0.0.1:{gone.server_port}" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_vectors_in_base64_are_the_same_as_in_a_list(server: Server) -> None:
    packed = base64.b64encode(np.array([0.25, -0.5, 0.125], "<f4").tobytes()).decode()
    found = []
    for vector in (packed, [0.25, -0.5, 0.125]):
        server.answer = lambda texts, vector=vector: as_body([vector])
        found.append(embedder(server.url).embed_query(TEXT, soon()))

    assert found[0].tolist() == found[1].tolist()


def test_half_a_vector_in_base64_is_refused(server: Server) -> None:
    packed = base64.b64encode(b"\0\0\x80>\0\0").decode()

    assert "vectors of numbers" in failure(server, lambda texts: as_body([packed]))


def test_large_numbers_are_a_direction_too(server: Server) -> None:
    server.answer = lambda texts: as_body([[1e300, 0.0, 1e300]])

    vector = embedder(server.url).embed_query(TEXT, soon())

    assert vector == pytest.approx([0.5**0.5, 0, 0.5**0.5])


def test_a_blank_text_is_never_sent(server: Server) -> None:
    first, blank, last = embedder(server.url).embed_passages(["a", " \n\t", "b"])

    assert [request["input"] for request in server.requests] == [["a", "b"]]
    assert isinstance(blank, Refused)
    assert not isinstance(first, Refused)
    assert not isinstance(last, Refused)
    with pytest.raises(EmbeddingServiceUnavailable, match="blank"):
        embedder(server.url).embed_query(" ", soon())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([float("nan"), 1.0, 1.0], "NaN"),
        ([None, 1.0, 1.0], "NaN"),
        ([0.0, 0.0, 0.0], "zero"),
        ([1.0, 2.0], "dimension 2, the store has 3"),
    ],
)
def test_a_text_with_a_bad_vector_is_refused_and_its_neighbours_are_not(
    server: Server, bad: list[float], reason: str
) -> None:
    server.answer = lambda texts: as_body([bad if "odd" in t else vector_of(t) for t in texts])

    found = embedder(server.url).embed_passages(["a", "odd", "b"])

    assert [isinstance(one, Refused) for one in found] == [False, True, False]
    assert isinstance(found[1], Refused)
    assert reason in found[1].reason


def test_a_bad_vector_is_asked_for_once_more_alone(server: Server) -> None:
    def overflowing(texts: list[str]) -> tuple[int, bytes]:
        return as_body([[float("nan")] * 3 if len(texts) > 1 else vector_of(t) for t in texts])

    server.answer = overflowing
    found = embedder(server.url).embed_passages(["a", "bb"])

    assert not any(isinstance(one, Refused) for one in found)
    assert [request["input"] for request in server.requests] == [["a", "bb"], ["a"], ["bb"]]


def test_a_model_of_another_dimension_is_no_matter_of_single_texts(server: Server) -> None:
    server.answer = lambda texts: as_body([[1.0, 2.0]] * len(texts))

    with pytest.raises(ModelMismatch, match="dimension 2, the store has 3"):
        embedder(server.url).embed_passages(["a", "b"])
    with pytest.raises(ModelMismatch, match="POIMEN_EMBEDDING_DIMENSION"):
        embedder(server.url).warm_up()


@pytest.mark.parametrize("most", [8, 1])
@pytest.mark.parametrize("status", [413, 422])
def test_a_server_that_takes_fewer_texts_gets_fewer(server: Server, most: int, status: int) -> None:
    server.answer = lambda texts: honest(texts) if len(texts) <= most else (status, b"{}")
    one = embedder(server.url)

    found = one.embed_passages([f"section {n}" for n in range(60)])
    server.requests.clear()
    one.embed_passages([f"section {n}" for n in range(60)])

    assert not any(isinstance(vector, Refused) for vector in found)
    assert {len(request["input"]) for request in server.requests} <= {most, 60 % most}


def test_a_text_beyond_the_model_s_tokens_is_cut_until_it_is_taken(server: Server) -> None:
    def strict(texts: list[str]) -> tuple[int, bytes]:
        # Two characters a token, as code has.
        return honest(texts) if all(len(text) <= 1024 for text in texts) else (413, b"{}")

    server.answer = strict
    trace = "at org.example.Frame.call(Frame.java:17)\n" * 500

    (vector,) = embedder(server.url).embed_passages([trace])

    assert not isinstance(vector, Refused)
    sent = [request["input"][0] for request in server.requests]
    assert [len(text) for text in sent] == [2048, 1024]
    assert trace.startswith(sent[-1])


def test_a_limit_that_outlasts_a_request_says_when_to_come_back(server: Server) -> None:
    server.headers = {"Retry-After": "3600"}
    server.answer = lambda texts: (429, b"")

    with pytest.raises(EmbeddingServiceUnavailable, match="3600 s") as caught:
        embedder(server.url).embed_passages(["a"])

    assert caught.value.retry_after_s == 3600
    assert len(server.requests) == 1


def test_a_silent_server_is_given_up_at_the_deadline(server: Server) -> None:
    release = threading.Event()

    def silent(texts: list[str]) -> tuple[int, bytes]:
        release.wait(30)
        return honest(texts)

    server.answer = silent
    with pytest.raises(EmbeddingServiceUnavailable, match="did not answer within"):
        embedder(server.url).embed_query(TEXT, Deadline.after(0.1))
    release.set()


def test_a_server_that_trickles_its_answer_is_given_up_at_the_deadline(server: Server) -> None:
    # Every byte comes long before a read would time out, and in the end it is a good answer.
    release = threading.Event()

    class Trickling(Handler):
        def do_POST(self) -> None:
            content = honest([TEXT])[1].rjust(500)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for start in range(len(content)):
                if release.wait(0.02):
                    self.close_connection = True
                    return
                self.wfile.write(content[start : start + 1])

    server.RequestHandlerClass = Trickling
    with pytest.raises(EmbeddingServiceUnavailable, match="did not answer within"):
        embedder(server.url).embed_query(TEXT, Deadline.after(0.3))
    release.set()


def test_a_key_in_any_script_is_sent_as_utf8(server: Server) -> None:
    embedder(server.url, key="ключ").embed_query(TEXT, soon())

    sent = server.requests[0]["authorization"].encode("latin-1").decode()
    assert sent == "Bearer ключ"


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(server: Server) -> None:
    with pytest.raises(EmbeddingServiceUnavailable, match="POIMEN_EMBEDDING_API_KEY") as caught:
        embedder(server.url, key="two\nlines").embed_query(TEXT, soon())

    assert "lines" not in str(caught.value)
    assert caught.value.__suppress_context__, "nor in the log, where the cause would be printed"
    assert server.requests == []


def test_a_deadline_that_has_passed_asks_nothing(server: Server) -> None:
    with pytest.raises(EmbeddingServiceUnavailable, match="no time was left"):
        embedder(server.url).embed_query(TEXT, Deadline.after(0))

    assert server.requests == []


def test_an_encoder_without_the_embedded_model_has_no_token_vectors(server: Server) -> None:
    encoder = HttpEncoder(embedder(server.url), None)

    assert encoder.token_model is None
    assert encoder.encode_query(TEXT, soon()).tokens is None
    assert [one.tokens for one in encoder.encode_passages(["a", "b"])] == [None, None]
    assert (encoder.model.name, encoder.model.dimension) == ("plain-model", 3)


def test_with_the_embedded_model_beside_it_vectors_are_the_servers_and_tokens_its_own(
    server: Server,
) -> None:
    encoder = build_encoder(url=server.url, api_key=KEY, model="plain-model", dimension=3)
    embedded = build_encoder(url=None, api_key=None, model="unused", dimension=1)

    question, own = (one.encode_query(TEXT, soon()) for one in (encoder, embedded))
    (passage,), (own_passage,) = (one.encode_passages([TEXT]) for one in (encoder, embedded))

    assert question.vector.tobytes() == embedder(server.url).embed_query(TEXT, soon()).tobytes()
    assert (question.tokens, passage.tokens) == (own.tokens, own_passage.tokens)
    assert encoder.token_model == embedded.token_model
    assert encoder.model != embedded.model
