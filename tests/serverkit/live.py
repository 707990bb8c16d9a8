"""A real server for a test: uvicorn on a loopback port of its own, over a real store."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status  # pyright: ignore[reportMissingTypeStubs]
from specscope_server.app import create_app
from specscope_server.listening import address_of, listen, reserve, url_of
from specscope_server.serving import server_for
from specscope_server.settings import ServerSettings
from specscope_server.store import open_store
from specscope_server.store.port import Store

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


@dataclass
class Live:
    """A running server: its address, a client for it, and its store."""

    url: str
    client: httpx.Client
    store: Store
    settings: ServerSettings

    def export(self, message: Message, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        body = message.SerializeToString()
        return self.client.post(path, content=body, headers={"Content-Type": PROTOBUF, **headers})

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an endpoint that must succeed."""
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def connect(self) -> socket.socket:
        """A bare connection, for requests that no client library would send."""
        port = int(self.url.rpartition(":")[2])
        return socket.create_connection(("127.0.0.1", port), timeout=30)


@contextmanager
def serving(
    url: str, *, grpc: bool = False, verify: ssl.SSLContext | bool = True, **changed: Any
) -> Generator[Live]:
    """Serve the database ``url`` until the block ends, with gRPC if asked; ``changed`` are settings."""
    with ExitStack() as held:
        address = address_of(held.enter_context(reserve("127.0.0.1", 0))) if grpc else ""
        yield from _serving(ServerSettings(db=url, port=0, grpc_address=address, **changed), verify)


def _serving(settings: ServerSettings, verify: ssl.SSLContext | bool) -> Generator[Live]:
    store = open_store(settings.db)
    listener = listen("127.0.0.1", 0)
    server = server_for(create_app(settings, store), settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = url_of(listener, "127.0.0.1", tls=settings.tls)
    try:
        with httpx.Client(base_url=address, timeout=60, verify=verify) as client:
            if settings.grpc_address:
                client.get("/healthz").raise_for_status()  # from then on gRPC listens as well
            yield Live(address, client, store, settings)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def status_of(answer: httpx.Response) -> Status:
    """The ``google.rpc.Status`` of a protobuf answer."""
    assert answer.headers["content-type"] == PROTOBUF
    return Status.FromString(answer.content)
