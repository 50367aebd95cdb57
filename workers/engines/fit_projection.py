"""Fit the token projection: `python -m workers.engines.fit_projection OUT`.

The text is the docstrings of this Python's standard library: neutral, technical English under a
licence that lets the result be shipped. Another Python version has other docstrings, and another
processor may round otherwise, so a new fit is another token model: its SHA-256 goes into
`workers.engines.projection` and stored tokens are made again.
"""

import ast
import io
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from workers.engines.threads import limit_blas_threads

PASSAGES = 2000
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages"}


def docstrings(stdlib: Path) -> Iterator[str]:
    """The standard library's docstrings of a line or more, in the order of their files."""
    for path in sorted(stdlib.rglob("*.py")):
        parts = path.relative_to(stdlib).parts
        if parts[0].removesuffix(".py") not in sys.stdlib_module_names or _LEFT_OUT & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            continue  # a template, not a module
        for node in ast.walk(tree):
            if isinstance(node, _DEFINITIONS) and len(found := ast.get_docstring(node) or "") > 80:
                yield found


def main(out: Path) -> None:
    """Write the projection to `out` and print its SHA-256."""
    limit_blas_threads()
    # Here and not above: numpy reads the number of threads when it is imported.
    import hashlib

    import numpy as np

    from workers.engines.late_interaction import WIDTH, stop_ids
    from workers.engines.minilm import DIMENSION, MiniLM, Reading

    minilm = MiniLM()
    dropped = list(stop_ids(minilm))
    moments = np.zeros((DIMENSION, DIMENSION))

    def add(reading: Reading) -> None:
        kept = np.isin(reading.token_ids, dropped, invert=True)
        states = reading.states[kept].astype(np.float64)
        moments[:] += states.T @ states

    texts = sorted(set(docstrings(Path(sysconfig.get_paths()["stdlib"]))))
    # Evenly spaced, so that every part of the library is heard.
    chosen = [texts[index * len(texts) // PASSAGES] for index in range(PASSAGES)]
    minilm.read_each(chosen, add)

    # Uncentred: cosines are to be kept, and those are taken from the origin.
    _, vectors = np.linalg.eigh(moments)
    leading = vectors[:, ::-1][:, :WIDTH]
    # An eigenvector's sign is arbitrary; fix it, so that fitting again gives the same file.
    largest = np.abs(leading).argmax(axis=0)
    leading = leading * np.sign(leading[largest, np.arange(WIDTH)])

    file = io.BytesIO()
    np.save(file, leading.astype(np.float16), allow_pickle=False)
    out.write_bytes(file.getvalue())
    print(hashlib.sha256(file.getvalue()).hexdigest())  # noqa: T201 - the command's answer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
