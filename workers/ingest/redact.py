"""Keys, tokens and passwords are masked before a text is stored.

Kingfisher knows the forms of some hundred services' keys. It reports what somebody should look at,
and so leaves out documented examples and keys that are too short to be real. What is to be stored
is judged the other way round: what has the form of a key, or stands where a password stands, is
masked. A value is never masked for looking random alone.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MOST_ROUNDS = 4
LONGEST_KEY = 20_000  # characters of a private key
_MASK = re.compile(r"\[redacted: [a-z0-9-]+\]")
_SECRET_PART = re.compile(r"-secret|passphrase|security-token")
_WORD_END = r"(?![A-Za-z0-9])"

_TOKENS: Mapping[str, re.Pattern[str]] = {
    "aws-access-key": re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    "anthropic-api-key": re.compile(r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    "openai-api-key": re.compile(r"\bsk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|\w{40,})"),
    "github-token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    "gitlab-token": re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"),
    "slack-token": re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{0,40}\d[A-Za-z0-9-]{8,}"),
    "google-api-key": re.compile(rf"\bAIza[A-Za-z0-9_-]{{35}}{_WORD_END}"),
    "hugging-face-token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "stripe-key": re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16,}"),
    "json-web-token": re.compile(
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    ),
}
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/=\s])*")
# The last @ before the path: a password may hold others.
_IN_URL = re.compile(r"://[^\s/:@'\"`<>]{0,128}:([^\s/'\"`<>]{1,256})@(?=[\w.\[-])")
_HEADER = re.compile(r"(?i)\b(?:bearer|basic)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,})")
_ASSIGNED = re.compile(
    r"(?i)(?P<name>passwo?r?d|passphrase|pwd|secret|token|(?:api|access|auth|secret|private)[_-]?key)"
    r"[\"'`]?[ \t]{0,4}(?:=>|:=|=|:)[ \t]{0,4}"
    r"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\s]{6,512})(?P=quote)"
    r"|(?P<plain>[^\s\"'`,;&|<>(){}\[\]]{6,512}))"
)
_PLACEHOLDER = re.compile(
    r"[$%{<*(\[@]|(?i:your|my[_-]|some[_-]|example|placeholder|change[_-]?me|dummy|none|null|true|false)"
    r"|(?P<same>.)(?P=same)*$"
)
# What a program reads a secret from: a.b.c, NAME, f(x), a path, the-name-1. No secret by itself.
_REFERENCE = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)\w+)+$|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$|\.{0,2}/|\w+://|.*[(){}$]"
    r"|[a-z]+(?:[-_/][a-z]+)+[-_]?\d{0,2}$"
)


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with its secrets masked, and how many of each kind there were."""

    text: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Finding:
    start: int
    end: int
    kind: str


class Redactor:
    """The rules, compiled once and shared by all threads."""

    def __init__(self, cache: Path | None) -> None:
        """Compiles the rules: seconds, or a fraction of one where they are cached.

        cache: a folder of this user's own that keeps the compiled rules; None: they are not kept.
        """
        from kingfisher_sdk import Rules, Scanner

        is_cached = cache is not None
        rules = Rules(cache=is_cached, cache_dir=cache)
        self._scanner = Scanner(rules, base64=False)

    def redact(self, text: str) -> Redacted:
        """Mask what is secret. A text that was redacted stays what it is."""
        counts: Counter[str] = Counter()
        # A mask changes what stands beside it, so another look may find more.
        for _ in range(MOST_ROUNDS):
            findings = _apart(self._find(text), text)
            if not findings:
                break
            text = _masked(text, findings)
            counts.update(finding.kind for finding in findings)
        return Redacted(text, dict(sorted(counts.items())))

    def _find(self, text: str) -> Iterator[_Finding]:
        yield from _private_keys(text)
        for kind, pattern in _TOKENS.items():
            for found in pattern.finditer(text):
                yield _Finding(*found.span(), kind)
        yield from self._known(text)
        for found in _IN_URL.finditer(text):
            if not _PLACEHOLDER.match(found[1]):
                yield _Finding(*found.span(1), "password-in-url")
        for found in _HEADER.finditer(text):
            if re.search(r"\d", found[1]):
                yield _Finding(*found.span(1), "authorization")
        yield from _assigned(text)

    def _known(self, text: str) -> Iterator[_Finding]:
        """What Kingfisher finds. Its offsets are bytes."""
        data = text.encode()
        found = sorted(
            (finding.location["start_offset"], finding.location["end_offset"], finding.rule_id)
            for finding in self._scanner.scan(data)
            # The others are ids and addresses that belong to a secret, and are none.
            if finding.visible or _SECRET_PART.search(finding.rule_id)
        )
        at_byte = at = 0
        for start, end, rule in found:
            at += len(data[at_byte:start].decode())
            at_byte = start
            length = len(data[start:end].decode(errors="ignore"))
            yield _Finding(at, at + length, _kind(rule))


def _kind(rule: str) -> str:
    """A rule's name without its author: `betterleaks.github-pat` is `github-pat`."""
    name = re.sub(r"^[a-z]+\.(?:secrets/)?|\.\d+$", "", rule.lower())
    known = {"generic-credential-uri": "password-in-url", "jwt": "json-web-token"}
    return known.get(name) or re.sub(r"[^a-z0-9]+", "-", name)


def _private_keys(text: str) -> Iterator[_Finding]:
    for found in _PRIVATE_KEY.finditer(text):
        dashes = text.find("-----", found.end(), found.end() + LONGEST_KEY)
        closing = _KEY_END.match(text, dashes) if dashes >= 0 else None
        if closing:
            yield _Finding(found.start(), closing.end(), "private-key")
            continue
        # Cut off, or only spoken of: a key is what has a line of base64.
        body = _KEY_BODY.match(text, found.end(), found.end() + LONGEST_KEY)
        if body and re.search(r"[A-Za-z0-9+/=]{24}", body[0]):
            yield _Finding(found.start(), body.start() + len(body[0].rstrip()), "private-key")


def _assigned(text: str) -> Iterator[_Finding]:
    for found in _ASSIGNED.finditer(text):
        group = "quoted" if found["quote"] else "plain"
        value = found[group].rstrip(".")
        if _PLACEHOLDER.match(value) or _REFERENCE.match(value):
            continue
        # A word is a name more often than a password, but for those of the environment.
        is_environment = found["name"].isupper() and text[found.end("name")] == "="
        if not is_environment and not (re.search(r"\d", value) and re.search(r"[^\W\d]", value)):
            continue
        kind = "password" if found["name"].lower().startswith("p") else "secret"
        start = found.start(group)
        yield _Finding(start, start + len(value), kind)


def _apart(findings: Iterator[_Finding], text: str) -> list[_Finding]:
    """In order and without overlaps; of those that overlap, the first that was found names both.

    What a mask holds already is no secret.
    """
    masks = [found.span() for found in _MASK.finditer(text)]
    apart: list[_Finding] = []
    mask = 0
    for finding in sorted(findings, key=lambda finding: finding.start):
        while mask < len(masks) and masks[mask][1] <= finding.start:
            mask += 1
        if mask < len(masks) and masks[mask][0] < finding.end:
            continue
        if apart and finding.start < apart[-1].end:
            last = apart[-1]
            apart[-1] = _Finding(last.start, max(last.end, finding.end), last.kind)
        else:
            apart.append(finding)
    return apart


def _masked(text: str, findings: list[_Finding]) -> str:
    parts = []
    at = 0
    for finding in findings:
        parts += [text[at : finding.start], f"[redacted: {finding.kind}]"]
        at = finding.end
    return "".join([*parts, text[at:]])
