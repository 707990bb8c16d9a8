"""The exporter process: the only place of the tracer that touches OpenTelemetry.

``python -m specscope.exporter`` is started by :mod:`specscope.helper`. Records come in, packed spans and
metrics go out over OTLP/HTTP: records -> :mod:`.pipeline` (request state, chunks, rollups) ->
:mod:`.spans`, :mod:`.metrics` -> :mod:`.sender` -> :mod:`.link`.
"""
