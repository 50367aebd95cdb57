"""One memory on servers of its own for all the faults; each test finds it whole again."""

from collections.abc import Iterator

import pytest

from tests.faults.memory import Memory, fragile_memory
from tests.integration.service import until


@pytest.fixture(scope="session")
def session_memory() -> Iterator[Memory]:
    with fragile_memory(POIMEN_JOB_ATTEMPTS="2") as memory:
        yield memory


@pytest.fixture
def memory(session_memory: Memory) -> Iterator[Memory]:
    """Every process lives before the test; after it, no accepted job is left without an end."""
    session_memory.wait_until_whole()
    yield session_memory
    until(lambda: session_memory.open_jobs() == 0, within_s=30)
