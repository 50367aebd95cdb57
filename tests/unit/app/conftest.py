"""The front door over fakes: two projects that answer with one hit each."""

import pytest

from tests.unit.app.app_fakes import Door, make_door
from tests.unit.pipeline.pipeline_fakes import found, hit


@pytest.fixture
def door() -> Door:
    return make_door(
        lambda project: found(project, hit(f"sha of {project}", project, 0.5)),
        "poimen",
        "agent-rust",
    )
