"""More projects than tasks: how they are packed, and how a pack is worked through."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from app.dispatch import pack
from workers.tasks.lanes import Lanes


def test_few_projects_are_one_task_each() -> None:
    assert pack(["a", "b", "c"], most=16) == [["a"], ["b"], ["c"]]


@given(st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=400), st.integers(1, 32))
def test_every_project_is_in_exactly_one_of_at_most_so_many_packs(
    projects: list[str], most: int
) -> None:
    packs = pack(projects, most)

    assert sorted(name for one in packs for name in one) == sorted(projects)
    assert len(packs) <= most
    sizes = {len(one) for one in packs}
    assert max(sizes) - min(sizes) <= 1


def test_a_slow_project_does_not_hold_up_its_pack() -> None:
    release, others = threading.Event(), threading.Barrier(3, timeout=10)
    done: list[str] = []

    def work(project: str) -> None:
        if project == "slow":
            release.wait(10)
        else:
            others.wait()  # passes only if both of them and the watcher below run meanwhile
        done.append(project)

    watcher = threading.Thread(target=lambda: (others.wait(), release.set()))
    watcher.start()
    Lanes(4, patience_s=0.01).run(["slow", "b", "c"], work)
    watcher.join()

    assert sorted(done) == ["b", "c", "slow"]
    assert done[-1] == "slow" or release.is_set()


def test_quick_projects_are_worked_one_after_the_other() -> None:
    running: set[str] = set()
    most_at_once: list[int] = []

    def work(project: str) -> None:
        running.add(project)
        most_at_once.append(len(running))
        running.discard(project)

    Lanes(4, patience_s=10).run([str(n) for n in range(20)], work)

    assert most_at_once == [1] * 20
