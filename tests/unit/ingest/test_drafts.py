"""From what was read to nodes, and from one version of a file to the next."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from workers.ingest.chunks import estimated_tokens
from workers.ingest.drafts import (
    Drafting,
    KnownTurn,
    SourceDraft,
    document_source,
    plan_of,
    session_source,
    sources_of,
)
from workers.ingest.parsed import Document, Parsed, Section, Session, Span, Speaker, Turn
from workers.model import Level, Sha256
from workers.naming import LONGEST_DOCUMENT

SPAN = Span("lines", 1, 1)
WORDS = ("yes", "no", "ebb", "flood " * 30, "reef\n\n" * 40)


def drafting(**settings: object) -> Drafting:
    def mask(text: str) -> tuple[str, Mapping[str, int]]:
        return text.replace("hunter2", "[redacted: password]"), {"password": text.count("hunter2")}

    given: dict[str, object] = {"name": "a.jsonl", "count": estimated_tokens, "most_tokens": 32}
    return Drafting(mask=mask, **(given | settings))  # type: ignore[arg-type]


def turn(key: str, text: str, speaker: Speaker = Speaker.USER, *tags: str) -> Turn:
    return Turn(key=key, speaker=speaker, text=text, span=SPAN, tags=tags)


def session_of(said: Sequence[tuple[str, str]], session_id: str = "s") -> Session:
    return Session(id=session_id, turns=tuple(turn(key, text) for key, text in said))


def draft_of(said: Sequence[tuple[str, str]], session_id: str = "s") -> SourceDraft:
    return drafting().session("p", "pi", session_of(said, session_id))


@dataclass
class Shelf:
    """Stored turns, kept as the database keeps them."""

    turns: dict[str, KnownTurn] = field(default_factory=dict)
    texts: dict[Sha256, str] = field(default_factory=dict)
    stored: int = 0

    def take(self, draft: SourceDraft) -> int:
        """Store a file; returns how many nodes were new."""
        keys = {own.key for own in draft.drafts}
        known = {
            key: one for key, one in self.turns.items() if one.source == draft.source or key in keys
        }
        plan = plan_of(draft, known, lambda shas: {sha: self.texts[sha] for sha in shas})
        before = set(self.texts)
        for key in plan.abandoned:
            self._tag(key)
        for own in plan.drafts:
            assert own.key is not None
            old = self.turns.get(own.key)
            self.texts[own.node.sha256] = own.node.text
            text_sha256 = _sha256(own.node.text)
            self.turns[own.key] = KnownTurn(draft.source, own.node.sha256, text_sha256, False)
            if old is not None and old.sha256 != own.node.sha256:
                self._drop(old.sha256)
        for keys in plan.surplus.values():
            for key in keys:
                self._drop(self.turns.pop(key).sha256)
        return len(set(self.texts) - before)

    def said(self, *, abandoned: bool = False) -> Counter[str]:
        return Counter(
            self.texts[turn.sha256]
            for turn in self.turns.values()
            if abandoned or not turn.is_abandoned
        )

    def _tag(self, key: str) -> None:
        known = self.turns[key]
        self.turns[key] = KnownTurn(known.source, known.sha256, known.text_sha256, True)

    def _drop(self, sha256: Sha256) -> None:
        assert sha256 not in {turn.sha256 for turn in self.turns.values()}, "still a turn's"
        del self.texts[sha256]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


talks = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)
keyed = st.builds(lambda said: [(f"k{n}", text) for n, text in enumerate(said)], talks)


@given(keyed)
def test_every_turn_becomes_nodes_with_names_of_their_own(said: list[tuple[str, str]]) -> None:
    draft = draft_of(said)

    shas = [own.node.sha256 for own in draft.drafts]
    assert len(set(shas)) == len(shas)
    assert len({own.key for own in draft.drafts}) == len(shas)
    assert all(own.node.text.strip() == own.node.text != "" for own in draft.drafts)
    whole = "".join("".join(own.node.text.split()) for own in draft.drafts)
    assert whole == "".join("".join(text.split()) for _, text in said)
    assert all(estimated_tokens(own.node.text) <= 32 for own in draft.drafts)


@given(keyed, st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_copies_of_any_age_in_any_order_end_as_the_longest(
    said: list[tuple[str, str]], lengths: list[int]
) -> None:
    shelf, straight = Shelf(), Shelf()
    for length in lengths:
        shelf.take(draft_of(said[:length]))
    straight.take(draft_of(said[: max(lengths)]))

    assert shelf.said() == straight.said() == shelf.said(abandoned=True)
    assert len(shelf.texts) == len(shelf.turns)


@given(keyed)
def test_the_same_file_again_brings_nothing(said: list[tuple[str, str]]) -> None:
    shelf = Shelf()
    shelf.take(draft_of(said))
    before = dict(shelf.turns)

    assert shelf.take(draft_of(said)) == 0
    assert shelf.turns == before


@given(st.data())
def test_whatever_becomes_of_a_session_each_turn_keeps_a_node_of_its_own(
    data: st.DataObject,
) -> None:
    """Grown, rewound, gone on elsewhere, with turns that say the same, also half written ones."""
    shelf = Shelf()
    said: list[tuple[str, str]] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 6))):
        said = said[: data.draw(st.integers(0, len(said)))]
        for text in data.draw(talks):
            said.append((f"k{number}", text))
            number += 1
        shelf.take(draft_of(said))

        live = Counter(own.node.text for own in draft_of(said).drafts)
        assert shelf.said() == live
        shas = [known.sha256 for known in shelf.turns.values()]
        assert len(set(shas)) == len(shas)
        assert set(shas) == set(shelf.texts)


@given(keyed, st.data())
def test_a_turn_that_is_still_written_ends_as_the_whole_one(
    said: list[tuple[str, str]], data: st.DataObject
) -> None:
    shelf = Shelf()
    key, text = said[-1]
    cuts = data.draw(st.lists(st.integers(1, len(text)), max_size=4))
    for cut in [*cuts, len(text), *cuts]:
        if text[:cut].strip():
            shelf.take(draft_of([*said[:-1], (key, text[:cut])]))

    wanted = Shelf()
    wanted.take(draft_of(said))
    squashed = ["".join("".join(one.said().elements()).split()) for one in (shelf, wanted)]
    assert sorted(squashed[0]) == sorted(squashed[1])
    assert len(shelf.texts) == len(shelf.turns)


@given(keyed, keyed, st.booleans())
def test_what_a_fork_shares_is_stored_once_whichever_comes_first(
    shared: list[tuple[str, str]], own: list[tuple[str, str]], is_fork_first: bool
) -> None:
    shelf = Shelf()
    fork = draft_of([*shared, *((f"own-{key}", text) for key, text in own)], "fork")
    first = draft_of(shared, "first")
    for draft in (fork, first) if is_fork_first else (first, fork):
        shelf.take(draft)

    assert sum(shelf.said().values()) == len(fork.drafts)


@given(keyed, keyed)
def test_turns_that_are_only_called_alike_are_all_kept(
    said: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    shelf = Shelf()
    one = draft_of([(key, f"one {text}") for key, text in said], "one")
    two = draft_of([(key, f"two {text}") for key, text in other], "two")
    for draft in (one, two, one, two):
        shelf.take(draft)

    assert sum(shelf.said().values()) == len(one.drafts) + len(two.drafts)


def test_a_turn_that_becomes_shorter_loses_its_other_parts() -> None:
    shelf = Shelf()
    shelf.take(draft_of([("a", "flood " * 300)]))
    assert len(shelf.turns) > 3

    shelf.take(draft_of([("a", "ebb")]))

    assert shelf.said() == Counter(["ebb"])


def test_what_is_kept_of_tools_and_thoughts_is_as_it_is_set() -> None:
    turns = (
        turn("a", "asked"),
        turn("b", "x" * 5000, Speaker.TOOL),
        turn("c", "thought", Speaker.ASSISTANT, "thinking"),
    )
    session = Session(id="s", turns=turns)
    found = {
        (tools, thoughts): sum(
            len(own.node.text)
            for own in drafting(tool_output=tools, keeps_thinking=thoughts)
            .session("p", "pi", session)
            .drafts
        )
        for tools in ("none", "short", "all")
        for thoughts in (False, True)
    }

    assert found == {
        ("none", False): 5,
        ("none", True): 12,
        ("short", False): 2005,
        ("short", True): 2012,
        ("all", False): 5005,
        ("all", True): 5012,
    }


def test_secrets_are_masked_in_turns_and_titles() -> None:
    maker = drafting()
    session = Session(id="s", turns=(turn("a", "it is hunter2"),), title="it is hunter2")

    draft = maker.session("p", "pi", session)

    assert draft.title == draft.drafts[0].node.title == draft.drafts[0].node.text
    assert "hunter2" not in repr(draft.drafts)
    assert maker.masked == Counter(password=1)


def test_a_document_is_evidence_with_chunks_that_rest_on_it() -> None:
    text = "# A\n\none\n"
    section = Section("A", 1, (), "a", text, Span("bytes", 0, len(text) - 1))
    parsed = Parsed("markdown", documents=(Document(text=text, sections=(section,), title="A"),))

    ((project, draft),) = sources_of(parsed, drafting(name="./x/../a.md"), lambda _: "p")

    root, chunk = (own.node for own in draft.drafts)
    assert (project, draft.source) == ("p", "x/a.md")
    assert (root.level, root.text, root.parents) == (Level.L0, text, ())
    assert (chunk.level, chunk.parents, chunk.text) == (Level.L1, (root.sha256,), text.strip())


@given(st.text(min_size=1, max_size=3000))
def test_a_documents_source_leads_nowhere(name: str) -> None:
    source = document_source(name)

    assert 0 < len(source) <= LONGEST_DOCUMENT
    assert not source.startswith("/")
    assert ".." not in source.split("/")[1:-1]
    assert document_source(source) == source


def test_sessions_with_ids_that_begin_alike_have_sources_of_their_own() -> None:
    ids = [f"019f857d-1111-7000-8000-00000000000{n}" for n in range(5)]
    sources = {session_source("codex", Session(id=one, turns=())) for one in ids}

    assert len(sources) == 5
