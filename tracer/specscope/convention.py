"""The published vocabulary of the wire: every span, attribute, metric, boundary and column name.

Frozen as wire version 1 (``tests/wire/v1`` holds golden files). A name that is not here is not sent;
``docs/reference/wire.md`` lists each of them and a test fails when one is missing there.
GenAI names follow the OpenTelemetry GenAI semantic conventions.
"""

from __future__ import annotations

from typing import Final

WIRE_VERSION: Final = 1
SCOPE_NAME: Final = "specscope"

# --- resource: who speaks -------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
PROCESS_PID: Final = "process.pid"
WIRE: Final = "specscope.wire"  # int, version of this vocabulary
TRACER_VERSION: Final = "specscope.version"
WORKSPACE: Final = "specscope.workspace"
ENVIRONMENT: Final = "specscope.environment"
INSTANCE: Final = "specscope.instance"  # one launch of a deployment, all ranks and hosts
PROCESS: Final = "specscope.process"  # hex, see identity.process_uid
PROCESS_START: Final = "specscope.process.start_time_ns"  # wall clock, ns since 1970
ROLE: Final = "specscope.process.role"  # api | scheduler | engine_core | worker
RANK_TP: Final = "specscope.rank.tp"
RANK_DP: Final = "specscope.rank.dp"
RANK_PP: Final = "specscope.rank.pp"
SERVING_ROLE: Final = "specscope.rank.serving_role"  # both | prefill | decode
ENGINE_NAME: Final = "specscope.engine.name"  # sglang | vllm | ...
ENGINE_VERSION: Final = "specscope.engine.version"
DETAIL: Final = "specscope.detail"  # summary | steps | tokens | full
MODEL: Final = "gen_ai.request.model"  # name the engine serves

# --- span names -----------------------------------------------------------------------------------
SPAN_ENGINE: Final = "spec_decode.engine"
SPAN_REQUEST: Final = "spec_decode.request"
SPAN_STEPS: Final = "spec_decode.steps"
SPAN_ROLLUP: Final = "spec_decode.rollup"
SPAN_RANKS: Final = "spec_decode.ranks"

# --- request: on the request span and, as running totals, on every steps span ------------------------
GEN_AI_OPERATION: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_ID: Final = "gen_ai.request.id"  # the rid the caller or engine chose; not unique
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"  # id of the answer, where it is known and not the rid
GEN_AI_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_UID: Final = "spec_decode.request.uid"
REQUEST_STATE: Final = "spec_decode.request.state"  # running | finished | aborted
REQUEST_KIND: Final = "spec_decode.request.kind"  # user | health_check | warmup
REQUEST_ARRIVAL: Final = "spec_decode.request.arrival_time_ns"  # wall clock
REQUEST_CACHED: Final = "spec_decode.request.cached_tokens"  # prompt tokens served from the prefix cache
REQUEST_QUEUE_S: Final = "spec_decode.request.queue_seconds"
REQUEST_FIRST_TOKEN_S: Final = "spec_decode.request.first_token_seconds"
REQUEST_VERIFY_STEPS: Final = "spec_decode.request.verify_steps"
REQUEST_DRAFTED_DEPTH: Final = "spec_decode.request.drafted_depth"
REQUEST_DRAFTED_NODES: Final = "spec_decode.request.drafted_nodes"
REQUEST_ACCEPTED: Final = "spec_decode.request.accepted"
REQUEST_BONUS: Final = "spec_decode.request.bonus"
REQUEST_COMMITTED: Final = "spec_decode.request.committed"
REQUEST_ZERO_STEPS: Final = "spec_decode.request.zero_accept_steps"
REQUEST_OVERSHOOT: Final = "spec_decode.request.overshoot_steps"
REQUEST_PREFILLS: Final = "spec_decode.request.prefill_passes"
REQUEST_ENGINE_STEPS: Final = "spec_decode.request.engine_verify_steps"  # its own counter, at the end
REQUEST_ENGINE_ACCEPTED: Final = "spec_decode.request.engine_accepted"  # likewise
REQUEST_BOUNDARIES: Final = "spec_decode.request.boundaries"  # bytes, columns.BOUNDARY_COLUMNS

# --- steps (chunk) --------------------------------------------------------------------------------
CHUNK_SEQ: Final = "spec_decode.chunk.seq"
CHUNK_FIRST_STEP: Final = "spec_decode.chunk.first_step"  # index of its first verify step in the request
CHUNK_STEPS: Final = "spec_decode.chunk.steps"  # bytes, one row a verify step
CHUNK_EXTENDS: Final = "spec_decode.chunk.draft_extends"  # bytes, one row a draft extend
CHUNK_HIDDEN: Final = "spec_decode.chunk.hidden_states"  # bytes, hidden.HIDDEN_COLUMNS
CHUNK_PROMPT: Final = "spec_decode.chunk.prompt_ids"  # bytes, column "id"; on a request's first chunk

# --- rollup ---------------------------------------------------------------------------------------
ROLLUP_SEQ: Final = "spec_decode.rollup.seq"  # keyed (process, seq), applied exactly once
ROLLUP_BUCKET: Final = "spec_decode.rollup.bucket_start"  # unix seconds, multiple of 10
ROLLUP_ROWS: Final = "spec_decode.rollup.rows"  # bytes, rollup.ROLLUP_COLUMNS
ROLLUP_HIDDEN: Final = "spec_decode.rollup.hidden_states"  # bytes, hidden_rollup.COLUMNS

# --- ranks: from every rank of a tensor-parallel group --------------------------------------------------
RANKS_SIZE: Final = "spec_decode.ranks.size"  # how many ranks must agree
RANKS_STEPS: Final = "spec_decode.ranks.steps"  # bytes, chunks.RANK_COLUMNS, one row a verify step

# --- engine ---------------------------------------------------------------------------------------
ENGINE_CONFIG: Final = "spec_decode.engine.config"  # JSON text, see docs/reference/wire.md
ENGINE_EVENT: Final = "spec_decode.engine.event"  # one of ENGINE_EVENTS

# --- clock: on engine, request, steps and rollup spans ----------------------------------------------
CLOCK_MONOTONIC: Final = "specscope.clock.monotonic_ns"  # anchor pair: read one after the other
CLOCK_WALL: Final = "specscope.clock.wall_ns"

# --- metrics --------------------------------------------------------------------------------------
METRIC_EXPECTED: Final = "spec_decode.boundary.expected"  # cumulative sum, {crossing}
METRIC_OBSERVED: Final = "spec_decode.boundary.observed"  # cumulative sum, {crossing}, per mode
METRIC_ARMED: Final = "spec_decode.boundary.armed"  # gauge 1/0, with the state of the hook
METRIC_REQUESTS: Final = "spec_decode.requests"  # cumulative sum, {request}, per kind
METRIC_HEARTBEAT: Final = "spec_decode.tracer.heartbeat"  # gauge, wall clock seconds
METRIC_ENDED: Final = "spec_decode.tracer.ended"  # gauge, wall clock seconds; only once it ends in order
METRIC_SPECULATION: Final = "spec_decode.engine.speculation"  # gauge 1/0: the engine is set to draft
METRIC_DROPPED: Final = "spec_decode.tracer.dropped"  # cumulative sum, {record}, per reason
METRIC_QUEUED: Final = "spec_decode.tracer.queued"  # gauge, {record}
METRIC_EXPORT_FAILURES: Final = "spec_decode.tracer.export_failures"  # cumulative sum
METRIC_HOOK_ERRORS: Final = "spec_decode.tracer.hook_errors"  # cumulative sum, per hook
METRIC_MISSED: Final = (
    "spec_decode.tracer.copies_missed"  # cumulative sum, {copy}, per reason: late | refused
)
METRIC_ENGINE_THREAD: Final = "spec_decode.tracer.engine_thread_time"  # cumulative sum, ns
METRIC_PASSES: Final = "spec_decode.engine.passes"  # cumulative sum, {pass}, per kind and batch
METRIC_PASS_TIME: Final = "spec_decode.engine.pass_time"  # cumulative sum, ns, likewise
LABEL_PASS: Final = "spec_decode.pass"
PASS_STEP: Final = "step"  # a whole speculative pass: draft, verify, draft extend, and the host between
PASS_DECODE: Final = "decode"  # a plain decode pass, without a draft
PASS_VERIFY: Final = "verify"  # part of a step: the target's forward over the drafts (CPU alone)
PASS_DRAFT: Final = "draft"  # the other part: all beside that forward, until the step returns (CPU alone)
PASS_KINDS: Final = (PASS_STEP, PASS_DECODE, PASS_VERIFY, PASS_DRAFT)
LABEL_BATCH: Final = "spec_decode.batch"

LABEL_BOUNDARY: Final = "spec_decode.boundary"
LABEL_SOURCE: Final = "spec_decode.source"
LABEL_MODE: Final = "spec_decode.mode"
LABEL_KIND: Final = "spec_decode.request.kind"
LABEL_REASON: Final = "specscope.reason"
LABEL_HOOK: Final = "specscope.hook"
LABEL_ARMING: Final = "specscope.arming"  # armed | missing | changed | failed | off

# Why a boundary can be seen or not.
ARMING_ARMED: Final = "armed"  # every hook it depends on sits on a function as we know it
ARMING_MISSING: Final = "missing"  # the engine has no such function
ARMING_CHANGED: Final = "changed"  # it has one, and not with the parameters that we rely on
ARMING_FAILED: Final = "failed"  # the hook met errors and disarmed itself
ARMING_OFF: Final = "off"  # nothing to see here: speculation off, no map or fc, an algorithm without it
ARMINGS: Final = (ARMING_ARMED, ARMING_MISSING, ARMING_CHANGED, ARMING_FAILED, ARMING_OFF)

# --- boundaries: places on the speculative path that a healthy step must cross ------------------------
AUX_CAPTURE: Final = "target.aux_capture"
DRAFT_EXTEND: Final = "draft.extend"
DRAFT_FC: Final = "draft.fc"
DRAFT_FORWARD: Final = "draft.forward"
DRAFT_MAP: Final = "draft.map"
DRAFT_PROPOSE: Final = "draft.propose"
TARGET_VERIFY: Final = "target.verify"
ENGINE_COMMIT: Final = "engine.commit"
BOUNDARIES: Final = (
    AUX_CAPTURE,
    DRAFT_EXTEND,
    DRAFT_FC,
    DRAFT_FORWARD,
    DRAFT_MAP,
    DRAFT_PROPOSE,
    TARGET_VERIFY,
    ENGINE_COMMIT,
)

# What fed a draft pass: the target's hidden states, or the draft's own from the step before.
TARGET_FED: Final = "target_fed"
SELF_FED: Final = "self_fed"
NO_SOURCE: Final = ""
SOURCES: Final = (NO_SOURCE, TARGET_FED, SELF_FED)

EAGER: Final = "eager"
GRAPH: Final = "graph"
DERIVED: Final = "derived"  # concluded from shapes or configuration, no call was seen
MODES: Final = (EAGER, GRAPH, DERIVED)

EVENT_START: Final = "start"
EVENT_WEIGHT_UPDATE: Final = "weight_update"
EVENT_LORA_LOAD: Final = "lora_load"
EVENT_LORA_UNLOAD: Final = "lora_unload"
EVENT_MEMORY_RELEASE: Final = "memory_release"
EVENT_MEMORY_RESUME: Final = "memory_resume"
ENGINE_EVENTS: Final = (
    EVENT_START,
    EVENT_WEIGHT_UPDATE,
    EVENT_LORA_LOAD,
    EVENT_LORA_UNLOAD,
    EVENT_MEMORY_RELEASE,
    EVENT_MEMORY_RESUME,
)

KIND_USER: Final = "user"
KIND_HEALTH_CHECK: Final = "health_check"
KIND_WARMUP: Final = "warmup"
REQUEST_KINDS: Final = (KIND_USER, KIND_HEALTH_CHECK, KIND_WARMUP)

STATE_RUNNING: Final = "running"
STATE_FINISHED: Final = "finished"
STATE_ABORTED: Final = "aborted"
REQUEST_STATES: Final = (STATE_RUNNING, STATE_FINISHED, STATE_ABORTED)

DETAIL_SUMMARY: Final = "summary"
DETAIL_STEPS: Final = "steps"
DETAIL_TOKENS: Final = "tokens"
DETAIL_FULL: Final = "full"
DETAIL_LEVELS: Final = (DETAIL_SUMMARY, DETAIL_STEPS, DETAIL_TOKENS, DETAIL_FULL)
