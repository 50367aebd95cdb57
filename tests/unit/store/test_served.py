"""What is remembered of answers, in a Redis of this process."""

from fakeredis import FakeRedis

from tests.unit.pipeline.pipeline_fakes import hit
from workers.model import Answer, Method, Served
from workers.store.served import KEPT_S, RedisServed


def served(*names: str, key: str = "k") -> Served:
    hits = tuple(hit(name, rerank_score=0.5) for name in names)
    return Served.of(Answer("q", ("p",), hits, (), (), "task"), key, Method.HYBRID)


def test_an_answer_is_found_as_it_was_served() -> None:
    answers = RedisServed(FakeRedis(), most=10)

    answers.save("q", served("a", "b"))

    found = answers.find("q")
    assert found == served("a", "b")
    assert found is not None
    second = found.find("b")
    assert second is not None
    assert (second.rank, second.rerank_score, second.semantic) == (2, 0.5, 0.5)
    assert found.find("c") is None
    assert answers.find("other") is None


def test_everything_about_it_has_a_lifetime() -> None:
    redis = FakeRedis()
    RedisServed(redis, most=10).save("q", served("a"))

    assert all(0 < redis.ttl(key) <= KEPT_S for key in redis.scan_iter())


def test_the_oldest_go_first_when_there_are_more_than_may_be() -> None:
    redis = FakeRedis()
    answers = RedisServed(redis, most=3)

    for number in range(7):
        answers.save(f"q{number}", served("a"))

    kept = [number for number in range(7) if answers.find(f"q{number}")]
    assert kept == [4, 5, 6]
    assert redis.llen("poimen:served") == 3


def test_fewer_from_one_day_to_the_next_let_go_of_the_surplus() -> None:
    redis = FakeRedis()
    for number in range(7):
        RedisServed(redis, most=7).save(f"q{number}", served("a"))

    RedisServed(redis, most=2).save("q7", served("a"))

    assert redis.llen("poimen:served") == 2
    assert redis.dbsize() == 3
