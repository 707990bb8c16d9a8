"""Requests as the scheduler sees them: when they arrive, what they are, and how they end."""

from __future__ import annotations

import importlib
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from specscope import convention as c
from specscope.engines.sglang import context
from specscope.identity import ArrivalOrdinals, request_uid
from specscope.records import Block, RequestFinished, RequestStarted

if TYPE_CHECKING:
    from specscope.recorder import Recorder

HEALTH_CHECK_PREFIX: Final = "HEALTH_CHECK"
"""``sglang/srt/constants.py``: /health and /health_generate make rids that start so."""

WARMUP_TEXT: Final = "The capital city of France is"
WARMUP_IDS: Final = [10, 11, 12]
WARMUP_NEW_TOKENS: Final = 8
"""The request that a starting server sends itself (``_execute_server_warmup``,
``entrypoints/http_server.py``)."""

PROMPT_IDS: Final = 4096
"""Prompt tokens kept per request, the last ones."""

MARK: Final = "specscope_request"
"""Attribute of SGLang's ``Req`` that holds our :class:`Live`; it dies with the request."""


@dataclass(slots=True)
class Live:
    """What we remember of one request."""

    uid: str
    finished: bool = False


def uid_of(req: Any) -> str:
    """Return the uid of a request, empty for one that was never seen to arrive."""
    live: Live | None = getattr(req, MARK, None)
    return live.uid if live is not None else ""


def uids_of(reqs: Iterable[Any]) -> tuple[str, ...]:
    """Return the uids of a batch, in batch order."""
    return tuple(uid_of(req) for req in reqs)


def visible(req: Any) -> int:
    """Return how many output tokens the request really has, after a stop cut."""
    return req.finished_len if req.finished_len is not None else len(req.output_ids)


class Requests:
    """Tells of arrivals and ends. ``emits``: whether this rank tells of requests at all."""

    def __init__(self, recorder: Recorder, *, dp: int, emits: bool) -> None:
        """Start with no request seen."""
        self._recorder = recorder
        self._dp = dp
        self._emits = emits
        self._ordinals = ArrivalOrdinals()
        self._warmup_possible = True
        self._held: list[RequestFinished] | None = None

    def created(self, _token: Any, req: Any, recv_req: Any, *_args: Any, **_kwargs: Any) -> None:
        """After ``Scheduler._create_generation_req``, through which every request comes."""
        now = time.monotonic_ns()
        rid = str(req.rid)
        uid = request_uid(self._recorder.instance, self._dp, rid, self._ordinals.next(rid))
        setattr(req, MARK, Live(uid))
        sampling = req.sampling_params
        kind = self._kind(rid, req, recv_req, sampling)
        self._recorder.ledger.requests[kind] += 1
        if not self._emits:
            return
        prompt = req.origin_input_ids
        received = float(getattr(req.time_stats, "scheduler_recv_time", 0.0))
        waited = time.perf_counter() - received if received > 0.0 else 0.0
        self._recorder.emit(
            RequestStarted(
                t_ns=now,
                uid=uid,
                rid=rid,
                kind=kind,
                arrival_ns=time.time_ns() - int(waited * 1e9),
                prompt_tokens=len(prompt),
                temperature=_temperature(sampling),
                max_tokens=sampling.max_new_tokens if isinstance(sampling.max_new_tokens, int) else None,
                trace=_trace(getattr(req.time_stats, "trace_ctx", None)) or context.carried(recv_req),
                prompt=_last(prompt),
            )
        )

    def queued(self, req: Any, *_args: Any, **_kwargs: Any) -> None:
        """Before ``Scheduler._add_request_to_queue``: of requests that were not seen to be made."""
        if getattr(req, MARK, None) is None:
            self.created(None, req, None)

    def _kind(self, rid: str, req: Any, recv_req: Any, sampling: Any) -> str:
        if rid.startswith(HEALTH_CHECK_PREFIX):
            return c.KIND_HEALTH_CHECK
        # A server sends its warm-up before it reports that it is ready, so only the first ordinary
        # request can be one; and then it must be exactly that request.
        first, self._warmup_possible = self._warmup_possible, False
        if first and sampling.max_new_tokens == WARMUP_NEW_TOKENS:
            text = getattr(recv_req or req, "input_text" if recv_req else "origin_input_text", None)
            if text == WARMUP_TEXT or (text is None and list(req.origin_input_ids) == WARMUP_IDS):
                return c.KIND_WARMUP
        return c.KIND_USER

    def hold(self) -> None:
        """Keep ends back until :meth:`release`: a step is told before the end of its request."""
        self._held = []

    def release(self) -> None:
        """Tell of the ends kept back since :meth:`hold`."""
        held, self._held = self._held, None
        for record in held or ():
            self._recorder.emit(record)

    def streamed(
        self, _token: Any, _result: Any, _streamer: Any, reqs: Any, *_args: Any, **_kwargs: Any
    ) -> None:
        """After ``SchedulerOutputStreamer.stream_output``, through which every computed answer goes."""
        for req in reqs:
            if req.finished_reason is not None:
                self._ended(req)

    def aborted(self, _token: Any, _result: Any, _abort: Any, req: Any) -> None:
        """After ``Scheduler.send_abort_output``: ended outside the output stream."""
        self._ended(req, aborted=True)

    def _ended(self, req: Any, *, aborted: bool = False) -> None:
        live: Live | None = getattr(req, MARK, None)
        if live is None or live.finished:
            return
        live.finished = True
        if not self._emits:
            return
        reason = "abort" if aborted or req.finished_reason is None else _reason(req.finished_reason)
        stats = req.time_stats
        record = RequestFinished(
            t_ns=time.monotonic_ns(),
            uid=live.uid,
            state=c.STATE_ABORTED if reason == "abort" else c.STATE_FINISHED,
            reason=reason,
            output_tokens=visible(req),
            queue_s=_between(stats, "wait_queue_entry_time", "forward_entry_time"),
            first_token_s=_between(stats, "scheduler_recv_time", "prefill_finished_time"),
            engine_verify_steps=_counter(req, "spec_verify_ct"),
            engine_accepted=_counter(req, "spec_num_correct_drafts"),
        )
        if self._held is not None:
            self._held.append(record)
        else:
            self._recorder.emit(record)


def _last(prompt: Any) -> Block:
    """The last tokens of a prompt; SGLang keeps them in an ``array`` of machine integers."""
    tail = prompt[-PROMPT_IDS:]
    kept = cast("array[int]", tail) if isinstance(tail, array) else array("q", tail)
    return kept.tobytes(), kept.itemsize, len(kept)


def _reason(finished: Any) -> str:
    return str(finished.to_json().get("type", type(finished).__name__))


def _between(stats: Any, start: str, end: str) -> float | None:
    """Seconds between two stamps of ``SchedulerReqTimeStats``, which are 0.0 until they are set."""
    began, ended = getattr(stats, start, 0.0), getattr(stats, end, 0.0)
    return ended - began if 0.0 < began <= ended else None


def _counter(req: Any, name: str) -> int | None:
    """Return one of SGLang's own counters of a request, from which it makes ``meta_info``.

    ``SchedulerBatchResultProcessor._resolve_spec_v2_tokens`` counts each verify step and its accepted
    drafts there, before it processes the step's tokens; nothing takes them back.
    """
    value = getattr(req, name, None)
    return value if isinstance(value, int) else None


def _temperature(sampling: Any) -> float | None:
    """SGLang turns temperature 0 into top_k 1 at temperature 1 (``sampling_params.py``): both greedy."""
    if sampling.top_k == 1:
        return 0.0
    value = sampling.temperature
    return float(value) if isinstance(value, int | float) else None


def _trace(context: Any) -> tuple[int, int] | None:
    """Return (trace id, parent span id) of SGLang's own trace of the request, where it makes one."""
    if not getattr(context, "tracing_enable", False):
        return None
    root = getattr(context, "root_span_context", None)
    if root is None:
        return None
    trace: Any = importlib.import_module("opentelemetry.trace")
    span = trace.get_current_span(root).get_span_context()
    return (span.trace_id, span.span_id) if span.is_valid else None
