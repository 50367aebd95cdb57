"""Where the web server of `mem up` listens."""

import socket

import pytest

from app.local.errors import StackError
from app.local.stack import _listen


def refused(host: str, port: int) -> str:
    with pytest.raises(StackError) as caught, _listen(host, port):
        pass
    return str(caught.value)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machine_s_names_its_setting(host: str) -> None:
    assert "POIMEN_HOST" in refused(host, 0)


def test_a_port_that_is_taken_leads_to_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        said = refused("127.0.0.1", other.getsockname()[1])

    assert said.startswith("Nothing can listen on 127.0.0.1 port ")
    assert "--port 0" in said
