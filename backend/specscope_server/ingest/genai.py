"""GenAI attributes of other tools: older names beside today's, and which request and answer a span is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from specscope import convention as c

from specscope_server.ingest.values import MAX_TEXT, clean
from specscope_server.store.request_names import ENDS_SO

CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CHOICES: Final = "gen_ai.request.choice.count"

TODAY: Final[Mapping[str, str]] = {
    # The deprecated names of the conventions, which SGLang 0.5.23 and vLLM 0.32 send.
    "gen_ai.usage.prompt_tokens": c.GEN_AI_INPUT_TOKENS,
    "gen_ai.usage.completion_tokens": c.GEN_AI_OUTPUT_TOKENS,
    "gen_ai.system": c.GEN_AI_PROVIDER,
    "gen_ai.openai.request.seed": "gen_ai.request.seed",
    "gen_ai.openai.request.response_format": "gen_ai.output.type",
    # Names of the engines alone.
    "gen_ai.usage.cached_tokens": CACHED_TOKENS,
    "gen_ai.request.n": CHOICES,
    # OpenLLMetry before it took the conventions' names.
    "llm.usage.prompt_tokens": c.GEN_AI_INPUT_TOKENS,
    "llm.usage.completion_tokens": c.GEN_AI_OUTPUT_TOKENS,
    "llm.vendor": c.GEN_AI_PROVIDER,
    "llm.request.model": c.MODEL,
    "llm.response.model": "gen_ai.response.model",
    "llm.response.id": c.GEN_AI_RESPONSE_ID,
    "llm.temperature": c.GEN_AI_TEMPERATURE,
    "llm.request.max_tokens": c.GEN_AI_MAX_TOKENS,
    # OpenInference.
    "llm.token_count.prompt": c.GEN_AI_INPUT_TOKENS,
    "llm.token_count.completion": c.GEN_AI_OUTPUT_TOKENS,
    "llm.token_count.prompt_details.cache_read": CACHED_TOKENS,
    "llm.model_name": c.MODEL,
    "llm.provider": c.GEN_AI_PROVIDER,
}
"""Older name to the one that the GenAI conventions have for the same today."""

_IDS: Final = (c.GEN_AI_REQUEST_ID, c.GEN_AI_RESPONSE_ID, "llm.response.id")
_SGLANG_RID: Final = "rid"
_SGLANG_MODULE: Final = "module"
_LOOKED_AT: Final = frozenset((*_IDS, _SGLANG_RID, _SGLANG_MODULE))


def renamed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was told, and under today's name what was told under an older one alone."""
    found = dict(told)
    for old, today in TODAY.items():
        if old in told and today not in told:
            found.setdefault(today, told[old])
    return found


def ids(pairs: Iterable[KeyValue]) -> tuple[str, str]:
    """Return the ids of the request and of the answer; empty where they are not told.

    SGLang's root span has two: ``gen_ai.request.id`` is whole, set at the end of a request, and ``rid`` is
    what follows the id's last underscore (``rid.split("_")[-1]``, srt/observability/trace.py of 0.5.23). Only
    where the first is missing, as on a request that was aborted, the second is taken, marked as an end with
    :data:`~specscope_server.store.request_names.ENDS_SO`.
    """
    told: dict[str, str] = {}
    for pair in pairs:
        if pair.key in _LOOKED_AT:
            told[pair.key] = _id(pair)
    request = told.get(c.GEN_AI_REQUEST_ID, "")
    if request.startswith(ENDS_SO):  # would be taken for the end of one, and joined to all that end so
        request = ""
    if not request and told.get(_SGLANG_RID) and told.get(_SGLANG_MODULE, "").startswith("sglang::"):
        request = ENDS_SO + told[_SGLANG_RID]
    return request, next((told[name] for name in _IDS[1:] if told.get(name)), "")


def _id(pair: KeyValue) -> str:
    """Return an id as text, cut as those of our own spans are; empty for what is none."""
    if pair.value.WhichOneof("value") == "int_value":  # vLLM numbers the requests of its offline class
        return str(pair.value.int_value)
    return clean(pair.value.string_value[:MAX_TEXT])
