"""What can go wrong with an evaluation itself."""

from pathlib import Path


class EvalError(Exception):
    """The evaluation cannot go on, or what it would tell is not what was asked for."""


class CannotAsk(EvalError):
    """What was asked for does not fit the dataset or the pipeline."""


class DatasetError(EvalError):
    """A file of a dataset is not as it should be."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        where = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{where}: {reason}.")
        self.path = path
        self.line = line
        self.reason = reason
