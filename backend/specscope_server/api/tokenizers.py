"""Tokenizers: sent by ``specscope tokenizer add``, found by the hash that engines tell of theirs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.requests import ClientDisconnect

from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    NO_NUL,
    Model,
    PartsOf,
    StoreOf,
    Uid,
    Workspace,
)
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.ingest import body
from specscope_server.ingest.refusal import Refusal
from specscope_server.store.model import TokenizerRow
from specscope_server.tokens import tokenizer_file
from specscope_server.tokens.vocabulary import VocabularyError

router = APIRouter(tags=["tokenizers"], responses=RESPONSES)
CONTENT_TYPE: Final = "application/vnd.specscope.tokenizer+json"
"""Asked for, because a page of another site cannot send it without asking first, and is told no."""
MAX_BYTES: Final = 64 << 20
"""Of a file, as the tracer reads at most; those in use have up to some 33 MiB."""
_CODES: Final = {408: "timeout", 413: "too_large", 415: "unsupported_media_type", 429: "busy"}
_readers = CapacityLimiter(1)
"""Files read at once: one of 33 MiB takes some ten times that in memory while it is."""


class TokenizerModel(Model):
    """A tokenizer."""

    tokenizer_hash: str = Field(description="As engines tell it of theirs: from what its ids mean.")
    created: datetime = Field(description="When the server got it first.")
    name: str = Field(description="What it was called when it was added.")
    tokens: int = Field(description="How many ids stand for something.")
    bytes: int = Field(description="Size of the file.")

    @classmethod
    def of(cls, row: TokenizerRow) -> TokenizerModel:
        """Take a row of the store."""
        return cls(**asdict(row))


class Tokenizers(Model):
    """Tokenizers, newest first."""

    items: list[TokenizerModel]


class Removed(Model):
    """What was removed."""

    tokenizer_hash: str


@router.post(
    "/tokenizers",
    summary="Take a tokenizer",
    openapi_extra={
        "requestBody": {"required": True, "content": {CONTENT_TYPE: {"schema": {"type": "object"}}}}
    },
)
async def add_tokenizer(
    request: Request,
    parts: PartsOf,
    workspace: Workspace = DEFAULT_WORKSPACE,
    name: Annotated[str, Query(max_length=200, pattern=NO_NUL, description="What to call it in lists.")] = "",
) -> TokenizerModel:
    """Store what the tokens of the ``tokenizer.json`` in the body are; the same again changes nothing."""
    receiver = parts.receiver
    limits = replace(receiver.limits, wire_bytes=MAX_BYTES)
    stream = request.stream()
    try:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
            raise Refusal(415, f"a tokenizer is sent as {CONTENT_TYPE}")
        length = body.declared_length(request.headers.get("content-length"))
        with receiver.admission.enter() as ticket:
            sent = await body.read(stream, length, limits, ticket)
            read = await to_thread.run_sync(tokenizer_file.read, sent, limiter=_readers)
            tokens = read.vocabulary.tokens
            row = TokenizerRow(read.hash, datetime.now(UTC), name, tokens, len(sent))
            packed = await to_thread.run_sync(read.vocabulary.pack)
            await to_thread.run_sync(parts.store.add_tokenizer, workspace, row, packed)
    except ClientDisconnect as error:
        raise ApiError(400, "invalid_body", "the body was not sent whole") from error
    except Refusal as refusal:
        with suppress(ClientDisconnect):
            await body.drain(stream, receiver.limits.seconds)
        code = _CODES.get(refusal.status, "invalid_body")
        raise ApiError(refusal.status, code, refusal.message) from refusal
    except VocabularyError as error:
        raise ApiError(
            400, "invalid_tokenizer", str(error), "Send the tokenizer.json of the target's folder."
        ) from error
    stored = await to_thread.run_sync(parts.store.tokenizers, workspace)
    found = next((one for one in stored if one.tokenizer_hash == read.hash), None)
    if found is None:
        raise not_found("tokenizer", read.hash, "It was removed while it came in; send it again.")
    return TokenizerModel.of(found)


@router.get("/tokenizers", summary="Tokenizers of a workspace")
def list_tokenizers(store: StoreOf, workspace: Workspace = DEFAULT_WORKSPACE) -> Tokenizers:
    """Return tokenizers, newest first."""
    return Tokenizers(items=[TokenizerModel.of(row) for row in store.tokenizers(workspace)])


@router.delete("/tokenizers/{tokenizer_hash}", summary="Remove a tokenizer")
def delete_tokenizer(
    store: StoreOf, tokenizer_hash: Uid, workspace: Workspace = DEFAULT_WORKSPACE
) -> Removed:
    """Remove a tokenizer: requests of engines with it show ids again."""
    if not store.delete_tokenizer(workspace, tokenizer_hash):
        raise not_found("tokenizer", tokenizer_hash, "See /api/v1/tokenizers for those there are.")
    return Removed(tokenizer_hash=tokenizer_hash)
