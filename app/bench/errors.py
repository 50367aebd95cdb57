"""What can go wrong with a benchmark itself."""


class BenchError(Exception):
    """The benchmark cannot go on, or what it measures is not what it should be."""
