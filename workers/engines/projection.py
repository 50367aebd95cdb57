"""The fitted projection that makes token vectors small, and the name its vectors go by."""

import io

import numpy as np
from numpy.typing import NDArray

from workers.engines.files import DATA, load_verified
from workers.engines.minilm import MODEL_SHA256

PROJECTION_SHA256 = "32df855fc7675eb3a223aab99a007f780b00151d64a54d45373dfae5b400a705"
TOKEN_MODEL = f"minilm-tokens-{MODEL_SHA256[:8]}-{PROJECTION_SHA256[:8]}"
"""Token vectors compare only under this name: other weights or another projection change it."""


def load_projection() -> NDArray[np.float32]:
    """The projection, shape (384, 128), orthonormal columns.

    Raises:
        ModelMismatch: the file is not the one this version was built with.
    """
    file = io.BytesIO(load_verified(DATA / "projection.npy", PROJECTION_SHA256))
    projection: NDArray[np.float16] = np.load(file, allow_pickle=False)
    return projection.astype(np.float32)
