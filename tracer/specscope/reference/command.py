"""The command: a reference into a file, and to a server where one is named."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from specscope.reference import Problem
from specscope.reference.make import Say, Wanted, make
from specscope.settings import without_userinfo

PATH: Final = "/api/v1/references"
SECONDS: Final = 120
API_TOKEN: Final = "SPECSCOPE_API_TOKEN"
"""Token of scope ``edit`` for a server that asks for one: of the environment alone, others see arguments."""


def fingerprint(wanted: Wanted, out: Path, send_to: str | None, workspace: str, say: Say) -> None:
    """Write a reference to ``out`` and post it to the server at ``send_to``.

    Raises:
        Problem: it cannot be made, written or sent; a file that was there before is left as it was.
    """
    if send_to is not None:
        address(send_to, workspace)  # a mistyped one is said before the work
    if out.exists() and wanted.prompts.exists() and out.samefile(wanted.prompts):
        raise Problem(f"cannot write {out}: it is the file of the prompts; name another one")
    if out.is_dir():
        raise Problem(f"cannot write {out}: it is a folder; name a file in it")
    written = _write(make(wanted, say), out)
    say(f"wrote {out}: {written} sequences")
    if send_to is not None:
        told = send(out, send_to, workspace)
        say(f"the server at {without_userinfo(send_to)} has it as {told.get('reference_uid')}")


def _write(lines: Iterable[str], out: Path) -> int:
    """Write lines to a file that appears when it is whole; return how many sequences they hold."""
    partial = out.with_name(f"{out.name}.partial")
    count = -2  # the first and the last line are no sequences
    try:
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(line)
                count += 1
        partial.replace(out)
    except OSError as error:
        raise Problem(f"cannot write {out}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def address(server: str, workspace: str) -> str:
    """Return where a server takes references.

    Raises:
        Problem: its address is none of HTTP.
    """
    try:
        parts = urlsplit(server)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half an IPv6 address
        sound = False
    if not sound:
        raise Problem(f"--send {server!r} is no address of a server, such as http://localhost:4318")
    return f"{server.rstrip('/')}{PATH}?workspace={quote(workspace, safe='')}"


def send(file: Path, server: str, workspace: str) -> dict[str, Any]:
    """Post a file and return what the server answered.

    Raises:
        Problem: the server is away or does not take it; the file stays.
    """
    place = without_userinfo(server)
    headers = {"Content-Type": "application/jsonl"}
    if token := os.environ.get(API_TOKEN, "").strip():
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(address(server, workspace), data=file.read_bytes(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise Problem(f"{place} did not take {file}: {error.code}, {_reason(error)}") from error
    except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
        # The last three: something answers there, which is no SpecScope.
        why = str(error).strip() or type(error).__name__
        raise Problem(f"cannot send {file} to {place}: {why}; it is kept, send it again") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        told = json.load(error)["error"]
        return f"{told['message']} {told['hint']}".strip()
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
