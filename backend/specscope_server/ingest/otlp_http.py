"""The OTLP/HTTP endpoints: from a request to the receiver and back, in the client's own content type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from specscope_server.ingest import body, content
from specscope_server.ingest.inflate import Inflater
from specscope_server.ingest.receiver import Receiver
from specscope_server.ingest.refusal import Refusal
from specscope_server.ingest.signals import SIGNALS, Signal


async def _export(receiver: Receiver, request: Request, signal: Signal) -> Response:
    """Answer one export."""
    stream = request.stream()
    try:
        return await _take(receiver, request, signal, stream)
    except Refusal as refusal:
        receiver.stats.refuse(refusal.status, refusal.message)
        answer = content.refuse(refusal, request.headers)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody is left to read it
    try:
        # One that did not come in its time is not waited for once more.
        whole = answer.status_code != 408 and await body.drain(stream, receiver.limits.seconds)
    except ClientDisconnect:
        whole = False
    if not whole:
        answer.headers["Connection"] = "close"
    return answer


async def _take(
    receiver: Receiver, request: Request, signal: Signal, stream: AsyncIterator[bytes]
) -> Response:
    headers, limits = request.headers, receiver.limits
    workspace = await receiver.authorize(headers.get("authorization"))
    form = content.require_format(headers)
    inflater = Inflater(content.require_encoding(headers), limits.raw_bytes)
    length = body.declared_length(headers.get("content-length"))
    with receiver.admission.enter() as ticket:
        async with aclosing(body.arriving(stream, length, limits, ticket)) as parts:
            arrived = await body.inflating(parts, inflater, ticket, receiver.inflate)
        response = await receiver.take(arrived, form, signal, ticket, workspace=workspace)
    return content.answer(response, form)


def install(app: FastAPI, receiver: Receiver) -> None:
    """Add the endpoints, and an answer to every other path and method below ``/v1``."""

    async def endpoint(request: Request) -> Response:
        signal = SIGNALS.get(request.url.path)
        if signal is not None and request.method == "POST":
            return await _export(receiver, request, signal)
        if signal is not None:
            refusal = Refusal(405, "exports are sent with POST", headers={"Allow": "POST"})
        else:
            refusal = Refusal(404, f"this server takes {', '.join(SIGNALS)} alone")
        return content.refuse(refusal, request.headers)

    every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
    app.add_route("/v1/{path:path}", endpoint, methods=every, include_in_schema=False)
