"""A forked process's signs of life, as its parent sees them."""

import os

from workers.pulse import Pulse


def test_a_child_is_heard_by_its_parent() -> None:
    pulse = Pulse()
    child = os.fork()
    if child == 0:
        pulse.beat()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    silent_s = pulse.silent_s(child)
    assert silent_s is not None
    assert 0 <= silent_s < 10
    assert pulse.silent_s(os.getpid()) is None


def test_another_process_in_the_same_place_is_not_mistaken_for_it() -> None:
    pulse = Pulse()
    pulse.beat()

    assert pulse.silent_s(os.getpid() + 1024) is None
