"""From an OTLP resource to :class:`ProcessFacts`: who speaks."""

from __future__ import annotations

from typing import Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from specscope import convention as c

from specscope_server.ingest.values import MAX_SMALL, MAX_TIME_NS, Attributes, Invalid, Tally
from specscope_server.store.told import ProcessFacts

ROLES: Final = ("api", "scheduler", "engine_core", "worker")
SERVING_ROLES: Final = ("both", "prefill", "decode")
DEFAULT: Final = "default"
"""Workspace and environment of a process that names none."""


def process_facts(resource: Resource, tally: Tally) -> ProcessFacts:
    """Return the process that a resource describes.

    Raises:
        Invalid: the wire version is not ours, or an attribute is missing or makes no sense.
    """
    attributes = Attributes.of(resource.attributes, tally)
    wire = attributes.required(c.WIRE, MAX_SMALL)
    if wire != c.WIRE_VERSION:
        raise Invalid(
            f"{c.WIRE} is {wire}, this server reads {c.WIRE_VERSION}: "
            f"update the {'server' if wire > c.WIRE_VERSION else 'tracer'}"
        )
    return ProcessFacts(
        workspace=attributes.name(c.WORKSPACE, DEFAULT),
        environment=attributes.name(c.ENVIRONMENT, DEFAULT),
        instance=attributes.name(c.INSTANCE),
        process_uid=attributes.hex_id(c.PROCESS),
        role=attributes.choice(c.ROLE, ROLES),
        pid=attributes.required(c.PROCESS_PID, MAX_SMALL),
        start_ns=attributes.required(c.PROCESS_START, MAX_TIME_NS, low=1),
        tp=attributes.integer(c.RANK_TP, MAX_SMALL) or 0,
        dp=attributes.integer(c.RANK_DP, MAX_SMALL) or 0,
        pp=attributes.integer(c.RANK_PP, MAX_SMALL) or 0,
        serving_role=attributes.choice(c.SERVING_ROLE, SERVING_ROLES, "both"),
        service_name=attributes.text(c.SERVICE_NAME),
        engine_name=attributes.text(c.ENGINE_NAME),
        engine_version=attributes.text(c.ENGINE_VERSION),
        tracer_version=attributes.text(c.TRACER_VERSION),
        detail=attributes.choice(c.DETAIL, c.DETAIL_LEVELS, ""),
    )
