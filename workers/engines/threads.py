"""One thread per matrix product; call this before anything imports numpy."""

import os

_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def limit_blas_threads() -> None:
    """Give BLAS one thread, unless the operator's environment says otherwise.

    The products here are small. With its default of one thread per core BLAS spins between them and
    takes the cores from the other queries of this process. The variables are read once, when numpy
    is first imported, so a process's entry point calls this before its other imports.
    """
    for name in _SINGLE_THREADED:
        os.environ.setdefault(name, "1")
