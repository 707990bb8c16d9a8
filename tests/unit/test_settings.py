"""Settings: sense from any environment, nonsense named and ignored."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import settings
from specscope.settings import Settings, read, without_userinfo

ON = {"SPECSCOPE_ENDPOINT": "http://127.0.0.1:4318"}


def test_nothing_set_is_off_and_says_why() -> None:
    assert read({}) == Settings(off="SPECSCOPE_ENDPOINT is not set")


def test_everything_set() -> None:
    found = read(
        {
            "SPECSCOPE_ENDPOINT": " https://collector:4318/ ",
            "SPECSCOPE_DETAIL": "FULL",
            "SPECSCOPE_NAME": "prod-a",
            "SPECSCOPE_INSTANCE": "launch-7",
            "SPECSCOPE_WORKSPACE": "w",
            "SPECSCOPE_ENVIRONMENT": "e",
            "SPECSCOPE_HEADERS": "Authorization=Bearer a=b, X-Other=1",
            "SPECSCOPE_QUEUE": "10",
            "SPECSCOPE_BUFFER_MB": "2",
            "SPECSCOPE_SAMPLE_EVERY": "3",
            "HOME": "/home",
        }
    )
    assert found == Settings(
        endpoint="https://collector:4318",
        detail="full",
        name="prod-a",
        instance="launch-7",
        workspace="w",
        environment="e",
        headers=(("authorization", "Bearer a=b"), ("x-other", "1")),
        queue=10,
        buffer_mb=2,
        sample_every=3,
    )


@pytest.mark.parametrize(
    ("extra", "field", "value", "ignored"),
    [
        ({"SPECSCOPE_DETAIL": "tonkens"}, "detail", "steps", "SPECSCOPE_DETAIL='tonkens'"),
        ({"SPECSCOPE_QUEUE": "0"}, "queue", 20_000, "SPECSCOPE_QUEUE='0'"),
        ({"SPECSCOPE_QUEUE": "-1"}, "queue", 20_000, "SPECSCOPE_QUEUE='-1'"),
        ({"SPECSCOPE_QUEUE": "1e9"}, "queue", 20_000, "SPECSCOPE_QUEUE='1e9'"),
        ({"SPECSCOPE_QUEUE": "9" * 5000}, "queue", 20_000, "SPECSCOPE_QUEUE='9"),
        ({"SPECSCOPE_BUFFER_MB": "lots"}, "buffer_mb", 64, "SPECSCOPE_BUFFER_MB='lots'"),
        ({"SPECSCOPE_BUFFER_MB": "²"}, "buffer_mb", 64, "SPECSCOPE_BUFFER_MB='²'"),
        ({"SPECSCOPE_HEADERS": "justatoken"}, "headers", (), "SPECSCOPE_HEADERS entry"),
        ({"SPECSCOPE_ENDPIONT": "x"}, "endpoint", "http://127.0.0.1:4318", "SPECSCOPE_ENDPIONT (unknown"),
    ],
)
def test_nonsense_is_named_and_the_default_used(
    extra: dict[str, str], field: str, value: object, ignored: str
) -> None:
    found = read(ON | extra)
    assert getattr(found, field) == value
    assert found.off == ""
    assert len(found.ignored) == 1
    assert found.ignored[0].startswith(ignored)


def test_an_endpoint_without_a_scheme_turns_the_tracer_off() -> None:
    found = read({"SPECSCOPE_ENDPOINT": "localhost:4318"})
    assert found.off
    assert "wanted: http://host:port" in found.ignored[0]


def test_secrets_are_not_repeated() -> None:
    found = read(ON | {"SPECSCOPE_HEADERS": "authorization=Bearer sécret"})
    assert "cret" not in " ".join(found.ignored)
    for entry in ("s3cret", "Bearer s3cret", "=s3cret"):
        assert "s3cret" not in " ".join(read(ON | {"SPECSCOPE_HEADERS": f"x-fine=1,{entry}"}).ignored)
    assert "s3cret" not in " ".join(read({"SPECSCOPE_ENDPOINT": "user:s3cret@host:4318"}).ignored)
    assert without_userinfo("http://user:s3c@ret@host:4318/x@y") == "http://host:4318/x@y"


def test_the_servers_variables_are_not_ours_to_judge() -> None:
    assert read(ON | {"SPECSCOPE_DB": "sqlite:///x", "SPECSCOPE_PORT": "1"}).ignored == ()
    assert read(ON | {"SPECSCOPE_SERVICE_HOST": "10.0.0.1", "SPECSCOPE_TRUSTED_HOSTS": "x"}).ignored == ()


@pytest.mark.parametrize(
    ("extra", "off"),
    [
        ({"SPECSCOPE_OFF": "1"}, "SPECSCOPE_OFF is set"),
        ({"SPECSCOPE_OFF": "0"}, ""),
        ({"OTEL_SDK_DISABLED": "TRUE"}, "OTEL_SDK_DISABLED=true"),
        ({"OTEL_SDK_DISABLED": "false"}, ""),
    ],
)
def test_switches(extra: dict[str, str], off: str) -> None:
    assert read(ON | extra).off == off


@given(st.dictionaries(st.sampled_from([*settings.ALL_VARIABLES, "OTEL_SDK_DISABLED"]), st.text()))
def test_no_environment_raises(environ: dict[str, str]) -> None:
    found: Any = read(environ)
    assert found.detail in ("summary", "steps", "tokens", "full")
    assert found.queue >= 1
    assert found.buffer_mb >= 1


def test_levels_include_the_lower_ones() -> None:
    tokens = Settings(detail="tokens")
    assert [tokens.at_least(d) for d in ("summary", "steps", "tokens", "full")] == [True, True, True, False]
