import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from workers.engines.files import load_verified
from workers.engines.minilm import batches, well_formed
from workers.errors import ModelMismatch


def test_the_pinned_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")

    assert load_verified(tmp_path / "model", hashlib.sha256(b"weights").hexdigest()) == b"weights"


def test_another_file_under_the_same_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"other weights")

    with pytest.raises(ModelMismatch, match=r"model is not the one .* install"):
        load_verified(tmp_path / "model", hashlib.sha256(b"weights").hexdigest())


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="model cannot be read"):
        load_verified(tmp_path / "model", "0" * 64)


def test_runs_hold_texts_of_like_length_within_the_bound_of_padded_tokens() -> None:
    lengths = [250, 3, 256, 4, 9, 256, 3, 250, 5]

    runs = batches(lengths, most=520)

    assert sorted(index for run in runs for index in run) == list(range(len(lengths)))
    assert all(len(run) * max(lengths[index] for index in run) <= 520 for run in runs)
    assert runs == [[1, 6, 3, 8, 4], [0, 7], [2, 5]]


def test_a_text_longer_than_the_bound_runs_alone() -> None:
    assert batches([30, 5, 30], most=20) == [[1], [0], [2]]
    assert batches([], most=20) == []


def test_only_surrogates_without_a_partner_are_replaced() -> None:
    assert well_formed("a\ud800b\udfff 😀") == "a\ufffdb\ufffd 😀"


def test_blas_is_limited_before_numpy_is_there_and_the_operator_has_the_last_word() -> None:
    code = (
        "import os, sys\n"
        "from workers.engines.threads import limit_blas_threads\n"
        "assert 'numpy' not in sys.modules\n"
        "limit_blas_threads()\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])\n"
    )
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "3"}

    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert shown.stdout.split() == ["1", "3"]
