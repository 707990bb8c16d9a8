from __future__ import annotations

import pytest
from serverkit.receivers import root_log
from specscope_server.alerts import TargetError, parse_target


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("webhook+https://hooks.example.org/T0/s3cr3t", "webhook+https://hooks.example.org/… #"),
        ("webhook+http://user:s3cr3t@10.0.0.1:8080/x?k=s3cr3t", "webhook+http://10.0.0.1:8080/… #"),
        ("webhook+http://[::1]:8080/s3cr3t", "webhook+http://[::1]:8080/… #"),
        ("json://user:s3cr3t@host/x", "json://… #"),
        ("gotify://host/s3cr3t", "gotify://… #"),
        ("mailto://user:s3cr3t@example.org", "mailto://… #"),
    ],
)
def test_label_shows_where_to_without_secrets(url: str, shown: str) -> None:
    target = parse_target(f" {url} ")
    assert target.label.startswith(shown)
    assert "s3cr3t" not in target.label
    assert target.label == parse_target(url).label


def test_labels_tell_addresses_of_one_host_apart() -> None:
    assert parse_target("webhook+https://h.org/a").label != parse_target("webhook+https://h.org/b").label


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://hooks.example.org/s3cr3t", "webhook\\+https://"),
        ("webhook+https:///s3cr3t", "webhook\\+https://host"),
        ("webhook+https://host:s3cr3t/x", "number for the port"),
        ("webhook+ftp://host/s3cr3t", "apprise does not take"),
        ("slack://s3cr3t", "apprise does not take"),
        ("s3cr3t", "starts with scheme://"),
        ("", "starts with scheme://"),
    ],
)
def test_what_cannot_be_sent_to_is_refused_without_repeating_it(url: str, message: str) -> None:
    with root_log() as written, pytest.raises(TargetError, match=message) as refused:
        parse_target(url)
    assert "s3cr3t" not in str(refused.value)
    assert "s3cr3t" not in written.getvalue()
