"""References: sent by ``specscope fingerprint``, and engines held against them token by token."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from pydantic import Field
from specscope import reference_file
from specscope.reference_file import Facts, ReferenceFileError, Stored
from starlette.requests import ClientDisconnect

from specscope_server.api.common import (
    DEFAULT_WORKSPACE,
    Model,
    PartsOf,
    StoreOf,
    Uid,
    Workspace,
    json_safe,
)
from specscope_server.api.errors import RESPONSES, ApiError, not_found
from specscope_server.diagnosis.reference import SlotComparison
from specscope_server.ingest import body
from specscope_server.ingest.refusal import Refusal
from specscope_server.store import reference_answers
from specscope_server.store.model import ReferenceRow
from specscope_server.store.reference_answers import ReferenceAnswer

router = APIRouter(tags=["references"], responses=RESPONSES)
UID_CHARS: Final = 32
"""Hex digits of the SHA-256 of a file that name it."""
CONTENT_TYPE: Final = "application/jsonl"
"""Asked for, because a page of another site cannot send it without asking first, and is told no."""
_CODES: Final = {408: "timeout", 413: "too_large", 415: "unsupported_media_type", 429: "busy"}
_readers = CapacityLimiter(1)
"""Files read at once: one of 16 MiB takes some ten times that in memory while it is."""


class ReferenceModel(Model):
    """A reference, without its sequences."""

    reference_uid: str = Field(description="From the file's content: the same file always has the same.")
    created: datetime = Field(description="When the server got it first.")
    name: str = Field(description="Folder of the target that it was made of.")
    sequences: int
    tokens: int = Field(description="Of all sequences.")
    bytes: int = Field(description="Size of the file.")
    facts: dict[str, Any] = Field(description="Target, draft, dtype, aux layers, seed, as in the file.")

    @classmethod
    def of(cls, row: ReferenceRow) -> ReferenceModel:
        """Take a row of the store."""
        return cls(**json_safe(asdict(row)))


class References(Model):
    """References, newest first."""

    items: list[ReferenceModel]


class SequenceModel(Model):
    """One sequence of a reference."""

    number: int
    name: str
    tokens: int
    prompt_tokens: int = Field(description="Of them given; the rest is a continuation.")


class ReferenceDetail(Model):
    """A reference with its sequences."""

    reference: ReferenceModel
    sequences: list[SequenceModel]


class Deleted(Model):
    """What was deleted."""

    reference_uid: str


class SlotModel(Model):
    """One place and slot of the engine against the reference. null: nothing was compared."""

    place: str
    slot: int
    recorded: int = Field(description="Rows with a fingerprint that the engine told.")
    tokens: int = Field(description="Of them compared: both know the tokens up to there.")
    relative_error: float | None = Field(description="sqrt(sum |x - y|^2 / sum |y|^2), from projections.")
    standard_error: float | None = Field(description="Of it, for the choice of projections.")
    median_error: float | None = Field(description="Of the single tokens; one request alone has it.")
    scale: float | None = Field(description="Ratio of the root mean squares, engine to reference.")
    against: list[float | None] = Field(description="Relative error to each slot of the reference.")
    equals: int | None = Field(description="Slot of the reference that this one is; null: none.")
    shifted: dict[str, float | None] = Field(
        description="Relative error to the reference one token before (-1) and behind (1)."
    )
    positions: list[int] = Field(description="Of the single tokens; empty for several requests.")
    errors: list[float] = Field(description="Relative error at each of these positions.")

    @classmethod
    def of(cls, one: SlotComparison) -> SlotModel:
        """Take what the diagnosis concluded."""
        estimate = one.estimate
        return cls(
            place=one.place,
            slot=one.slot,
            recorded=one.recorded,
            tokens=0 if estimate is None else estimate.tokens,
            relative_error=None if estimate is None else estimate.relative_error,
            standard_error=None if estimate is None else estimate.standard_error,
            median_error=one.median_error,
            scale=None if estimate is None else estimate.scale,
            against=list(one.against),
            equals=one.equals,
            shifted={str(shift): error for shift, error in one.shifted.items()},
            positions=list(one.positions),
            errors=list(one.errors),
        )


class ComparisonModel(Model):
    """An engine's hidden states against a reference, or why there is no comparison."""

    code: str = Field(description="Empty where compared, else one of the codes of the reference page.")
    reason: str = Field(description="Why nothing was compared; says nothing about the engine.")
    reference: ReferenceModel | None
    sequences: list[str] = Field(description="Names of its sequences that were compared with.")
    requests: int = Field(description="Requests compared.")
    shared_tokens: int = Field(description="Tokens that they share with those sequences from the start.")
    slots: list[SlotModel]
    left_out: dict[str, int] = Field(description="Requests not compared, by code.")
    aux_layers: list[int] | None = Field(
        description="Layers the engine says it captures, counted as those of the reference; null: not told."
    )

    @classmethod
    def of(cls, answer: ReferenceAnswer) -> ComparisonModel:
        """Take an answer."""
        return cls(
            code=answer.code,
            reason=answer.reason,
            reference=None if answer.reference is None else ReferenceModel.of(answer.reference),
            sequences=list(answer.sequences),
            requests=answer.requests,
            shared_tokens=answer.shared_tokens,
            slots=[SlotModel.of(one) for one in answer.slots],
            left_out=dict(answer.left_out),
            aux_layers=None if answer.aux_layers is None else list(answer.aux_layers),
        )


@router.post(
    "/references",
    summary="Take a reference file",
    openapi_extra={
        "requestBody": {"required": True, "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}
    },
)
async def add_reference(
    request: Request, parts: PartsOf, workspace: Workspace = DEFAULT_WORKSPACE
) -> ReferenceModel:
    """Store the file of ``specscope fingerprint`` in the body; the same file again changes nothing."""
    receiver = parts.receiver
    stream = request.stream()
    try:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
            raise Refusal(415, f"a reference is sent as {CONTENT_TYPE}")
        length = body.declared_length(request.headers.get("content-length"))
        with receiver.admission.enter() as ticket:
            sent = await body.read(stream, length, receiver.limits, ticket)
            facts, sequences = await to_thread.run_sync(_read, sent, limiter=_readers)
            uid = hashlib.sha256(sent).hexdigest()[:UID_CHARS]
            given = (workspace, uid, facts, sequences, len(sent), datetime.now(UTC))
            await to_thread.run_sync(parts.store.add_reference, *given)
    except ClientDisconnect as error:
        raise ApiError(400, "invalid_body", "the body was not sent whole") from error
    except Refusal as refusal:
        with suppress(ClientDisconnect):
            await body.drain(stream, receiver.limits.seconds)
        code = _CODES.get(refusal.status, "invalid_body")
        raise ApiError(refusal.status, code, refusal.message) from refusal
    except ReferenceFileError as error:
        raise ApiError(
            400, "invalid_reference", str(error), "Send the file that specscope fingerprint wrote."
        ) from error
    found = await to_thread.run_sync(parts.store.reference, workspace, uid)
    if found is None:
        raise not_found("reference", uid, "It was deleted while it came in; send it again.")
    return ReferenceModel.of(found)


def _read(sent: bytes) -> tuple[Facts, list[Stored]]:
    return reference_file.read(sent.splitlines())


@router.get("/references", summary="References of a workspace")
def list_references(store: StoreOf, workspace: Workspace = DEFAULT_WORKSPACE) -> References:
    """Return references, newest first."""
    return References(items=[ReferenceModel.of(row) for row in store.references(workspace)])


@router.get("/references/{reference_uid}", summary="One reference with its sequences")
def get_reference(
    store: StoreOf, reference_uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE
) -> ReferenceDetail:
    """Return one reference and what its sequences are called."""
    with store.snapshot() as reads:
        found = reads.reference(workspace, reference_uid)
        if found is None:
            raise _no_reference(reference_uid)
        sequences = reads.reference_sequences(workspace, reference_uid)
    return ReferenceDetail(
        reference=ReferenceModel.of(found),
        sequences=[
            SequenceModel(
                number=one.number, name=one.name, tokens=len(one.ids), prompt_tokens=one.prompt_tokens
            )
            for one in sequences
        ],
    )


@router.delete("/references/{reference_uid}", summary="Delete a reference")
def delete_reference(store: StoreOf, reference_uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE) -> Deleted:
    """Delete a reference with its sequences."""
    if not store.delete_reference(workspace, reference_uid):
        raise _no_reference(reference_uid)
    return Deleted(reference_uid=reference_uid)


@router.get("/requests/{uid}/reference", summary="One request's hidden states against a reference")
def compare_request(store: StoreOf, uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE) -> ComparisonModel:
    """Compare with the fitting reference that shares most tokens; of equals with the newest."""
    with store.snapshot() as reads:
        answer = reference_answers.of_request(reads, workspace, uid)
    if answer is None:
        raise not_found("request", uid, "This is the request's uid; search by rid with /api/v1/requests.")
    return ComparisonModel.of(answer)


@router.get("/engines/{engine_uid}/reference", summary="An engine's newest requests against a reference")
def compare_engine(
    store: StoreOf, engine_uid: Uid, workspace: Workspace = DEFAULT_WORKSPACE
) -> ComparisonModel:
    """Compare the newest 20 requests of users, those that share tokens with one reference, together."""
    with store.snapshot() as reads:
        answer = reference_answers.of_engine(reads, workspace, engine_uid)
    if answer is None:
        raise not_found("engine", engine_uid, "See /api/v1/engines for those there are.")
    return ComparisonModel.of(answer)


def _no_reference(uid: str) -> ApiError:
    return not_found("reference", uid, "See /api/v1/references for those there are.")
