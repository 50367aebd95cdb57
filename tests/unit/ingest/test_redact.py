"""Keys, tokens and passwords are masked; talk about them is left alone."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.ingest.redact import Redactor

# Put together here, so that no file of ours holds what looks like a key.
KEY_ID = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp" + "_" + "MadeUpForATest" * 2 + "00112233"
PRIVATE = "-----BEGIN {0}PRIVATE KEY-----\nTk9UIEEgS0VZ\n-----END {0}PRIVATE KEY-----"
MASK = "[redacted: {}]"


@pytest.fixture(scope="session")
def redactor(pytestconfig: pytest.Config) -> Redactor:
    assert pytestconfig.cache is not None
    return Redactor(Path(pytestconfig.cache.mkdir("redact")))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (KEY_ID, "aws-access-key"),
        (GITHUB, "github-token"),
        ("github_pat" + "_11ABCDEFG0" + "a1B2" * 10, "github-token"),
        ("glpat" + "-a1B2c3D4e5F6g7H8i9J0", "gitlab-token"),
        ("sk-ant" + "-api03-" + "a1B2c3" * 8, "anthropic-api-key"),
        ("sk-proj" + "-" + "a1B2c3" * 8, "openai-api-key"),
        ("xoxb" + "-1234567890-1234567890123-a1B2c3D4e5F6", "slack-token"),
        ("AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6q", "google-api-key"),
        ("hf" + "_" + "abcDEF" * 6, "hugging-face-token"),
        ("npm" + "_A4bC8dEfG2hIjKlMnOpQrSt5UvWxYz345678", "npmjsaccesstoken"),
        ("eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl", "json-web-token"),
        (PRIVATE.format(""), "private-key"),
        (PRIVATE.format("RSA "), "private-key"),
        (PRIVATE.format("").replace("\n", "\\n"), "private-key"),
    ],
)
def test_what_has_the_form_of_a_key_is_masked(redactor: Redactor, text: str, kind: str) -> None:
    redacted = redactor.redact(f"\u00fcber \u4e16\u754c: {text} and more")

    assert redacted.text == f"\u00fcber \u4e16\u754c: {MASK.format(kind)} and more"
    assert redacted.counts == {kind: 1}


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("postgres://app:", "notARealPass123", "@db.example.test/app"),
        ("redis://:", "hush2", "@cache:6379"),
        ("amqp+ssl://u:", "p@ss:w0rd", "@[::1]/x"),
        ("DB_PASSWORD=", "letmein", ""),
        ("export API_TOKEN=", "abc12345", " && run"),
        ("password: '", "hunter2hunter2", "'"),
        ('{"client_secret": "', "x9y8z7w6v5", '"}'),
        ("api_key = `", "x9y8z7w6v5", "`"),
        ("Authorization: Bearer ", "abcdef0123456789abcdef", ""),
        ("authorization: basic ", "dXNlcjpwYXNzd29yZDE=", ""),
    ],
)
def test_a_value_where_a_password_stands_is_masked(
    redactor: Redactor, before: str, secret: str, after: str
) -> None:
    redacted = redactor.redact(before + secret + after)

    assert redacted.text.startswith(before + "[redacted: ")
    assert redacted.text.endswith("]" + after)
    assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The apiKey comes from import.meta.env.VITE_API_KEY; this build has none.",
        "api_key = os.environ['SERVICE_KEY']",
        "const token = getToken(user1)",
        "password=${DB_PASSWORD_1}",
        "API_KEY=$OTHER_KEY_2",
        "token: <your-token-1>",
        "secret: my-service-secret-1",
        "password: str | None",
        "max_tokens: 4096, tokenizer: v2abc",
        "passwords must be 8 characters: a1b2c3",
        "Authorization: Bearer $TOKEN1",
        "git clone git@github.com:owner/repo.git",
        "http://localhost:8080/@types/node, https://x.test/a:b@c, mailto:a@b.c",
        "postgres://user:${PASSWORD}@host/db, postgres://user:<password>@host/db",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256 8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        "id 0c0ffee0-0000-4000-8000-000000009001",
        "A file that begins with -----BEGIN PRIVATE KEY----- is a key.",
        "It begins with -----BEGIN PRIVATE KEY----- and ends with -----END, they say.",
    ],
)
def test_talk_about_keys_is_left_alone(redactor: Redactor, text: str) -> None:
    redacted = redactor.redact(text)

    assert redacted.text == text
    assert redacted.counts == {}


def test_a_private_key_that_was_cut_off_is_masked_to_its_end(redactor: Redactor) -> None:
    text = "-----BEGIN PRIVATE KEY-----\n" + ("MIIEvQIBADANBgkqhkiG9w0B" + "\n") * 5

    assert redactor.redact(text).text == "[redacted: private-key]\n"


def test_every_secret_is_counted_by_its_kind(redactor: Redactor) -> None:
    redacted = redactor.redact(f"GITHUB_TOKEN={GITHUB} and {KEY_ID}, again {KEY_ID}")

    assert redacted.counts == {"aws-access-key": 2, "github-token": 1}
    assert redacted.text.startswith("GITHUB_TOKEN=[redacted: github-token] and ")


PIECES = st.sampled_from(
    [
        KEY_ID,
        GITHUB,
        PRIVATE.format("EC "),
        "://",
        "u:",
        "pa55word",
        "@h",
        "token=",
        "password: ",
        "'",
        '"',
        " ",
        "\n",
        "Bearer ",
        "abcdef0123456789",
        "[redacted: secret]",
        "[",
        "]",
        "\u00fc",
        "-----",
        "eyJ",
        "x",
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=st.lists(PIECES, max_size=20).map("".join))
def test_a_redacted_text_stays_what_it_is(redactor: Redactor, text: str) -> None:
    once = redactor.redact(text)
    again = redactor.redact(once.text)

    assert again.text == once.text
    assert again.counts == {}
    assert redactor.redact(text) == once


@pytest.mark.parametrize(
    "text",
    [
        "a" * 500_000,
        "://a:" * 50_000,
        "://a:" + "@" * 200_000,
        "token=a1 " * 20_000,
        "sk-" * 50_000,
        "eyJaaaaaaaa-" * 20_000,
        "xoxb-" * 50_000,
        "bearer " * 50_000,
        PRIVATE.format("")[:30] * 2_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_costs_little(redactor: Redactor, text: str) -> None:
    start = time.process_time()
    redactor.redact(text)

    assert time.process_time() - start < 10
