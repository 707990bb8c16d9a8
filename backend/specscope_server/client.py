"""Ask a running server from the command line; whatever goes wrong is said in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import httpx
import typer

from specscope_server import settings as s
from specscope_server.launches import meant

DEFAULT_URL: Final = f"http://{s.DEFAULT_HOST}:{s.DEFAULT_PORT}"
PAGE: Final = 500
TIMEOUT_S: Final = 60.0
API_TOKEN: Final = "SPECSCOPE_API_TOKEN"
"""Token to show, where the server asks for one: of the environment alone, as arguments are seen by others."""

Url = Annotated[
    str,
    typer.Option("--url", envvar=s.PUBLIC_URL, metavar="URL", help="Address of the server to ask."),
]
WorkspaceOption = Annotated[str, typer.Option("--workspace", help="Whose engines.")]


class AskError(Exception):
    """The server cannot be asked, or refuses; the message says where and what to do."""


class Client:
    """A server's API, of one workspace. Every method raises :class:`AskError`."""

    def __init__(self, url: str, workspace: str = "default") -> None:
        """Take a server's address; nothing is asked yet."""
        self._url = url.rstrip("/")
        self._workspace = workspace

    def get(self, path: str, **parameters: Any) -> Any:
        """Return what ``GET path`` answers; parameters that are ``None`` are left out."""
        asked = {"workspace": self._workspace} | parameters
        return self._ask("GET", path, params={name: v for name, v in asked.items() if v is not None})

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return what the server answers to a body of JSON."""
        return self._ask(method, path, params={"workspace": self._workspace}, json=body)

    def send_file(self, path: str, content: bytes, kind: str, **parameters: str) -> Any:
        """Return what the server answers to a file of the content type ``kind``."""
        asked = {"workspace": self._workspace} | parameters
        return self._ask("POST", path, params=asked, content=content, headers={"Content-Type": kind})

    def delete(self, path: str, **parameters: Any) -> Any:
        """Return what ``DELETE path`` answers; parameters that are ``None`` are left out."""
        asked = {"workspace": self._workspace} | parameters
        return self._ask("DELETE", path, params={name: v for name, v in asked.items() if v is not None})

    def pages(self, path: str, most: int, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a paged list, ``most`` of them at most."""
        cursor: str | None = None
        while most > 0:
            page = self.get(path, limit=min(PAGE, most), cursor=cursor, **parameters)
            yield from page["items"]
            most -= len(page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def engine(
        self, name: str, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, Any]:
        """Return the engine that ``name`` means: its uid, the beginning of it, its instance or its name.

        Of several launches of one name the one that is heard, or was from ``since`` to ``until``.
        """
        if not name:
            raise AskError("name an engine: by its uid, the beginning of it, its instance or its name")
        engines: list[dict[str, Any]] = self.get("/api/v1/engines")["items"]
        for of in ("engine_uid", "instance", "name"):
            found = [one for one in engines if one[of] == name]
            if not found and of == "engine_uid":
                found = [one for one in engines if one[of].startswith(name)]
            launches = meant(found, since, until)
            if len(launches) == 1:
                return launches[0]
            if found:
                uids = ", ".join(one["engine_uid"] for one in launches[:5])
                raise AskError(f"{len(launches)} engines are meant by {name!r}: give the uid of one ({uids})")
        known = ", ".join(sorted({one["name"] for one in engines})[:5]) or "none"
        raise AskError(
            f"{self._url} has no engine {name!r} in workspace {self._workspace!r} (it has: {known})"
        )

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        headers = {**_shown(), **more.pop("headers", {})}
        try:
            answer = httpx.request(method, self._url + path, headers=headers, timeout=TIMEOUT_S, **more)
        except httpx.InvalidURL as error:
            raise AskError(f"{self._url!r} is no address of a server: {error}") from error
        except httpx.HTTPError as error:
            raise AskError(
                f"{self._url} does not answer ({error}): is `specscope serve` running there? --url says where"
            ) from error
        if answer.is_success:
            try:
                return answer.json() if answer.content else None
            except ValueError as error:
                raise AskError(f"{self._url}{path} answers with something else than JSON") from error
        try:
            told = answer.json()["error"]
            why = f"{told['message']} {told['hint']}".strip()
        except (ValueError, KeyError, TypeError):
            why = answer.text[:200]
        raise AskError(f"{self._url}{path} answers {answer.status_code}: {why}")


def _shown() -> dict[str, str]:
    token = os.environ.get(API_TOKEN, "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}
