"""One service for the whole session; every test finds it empty, or holding the fixture."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.integration.service import Service, fixture_nodes, running
from tests.integration.snapshot import Snapshot

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(scope="session")
def session_service() -> Iterator[Service]:
    with running(POIMEN_QUERY_WORKERS="2") as service:
        yield service


@pytest.fixture
def empty_service(session_service: Service) -> Service:
    """A service without projects."""
    session_service.empty()
    return session_service


@pytest.fixture(scope="session")
def fixture_memory(session_service: Service) -> Snapshot:
    """The fixture, loaded once through the product's own ingest."""
    session_service.empty()
    ended = session_service.ingest(fixture_nodes())
    assert ended["status"] == "completed", ended
    return Snapshot.of(session_service)


@pytest.fixture
def service(session_service: Service, fixture_memory: Snapshot) -> Service:
    """A service whose memory holds exactly the fixture."""
    session_service.empty()
    fixture_memory.restore()
    return session_service
