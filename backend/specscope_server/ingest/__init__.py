"""OTLP in: decode, group, commit, acknowledge, in that order."""

from specscope_server.ingest.workers import leave_others_alone

leave_others_alone()
