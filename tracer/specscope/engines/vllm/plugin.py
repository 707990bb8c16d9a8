"""Entry point of the group ``vllm.general_plugins``: vLLM is not traced by this version."""

import logging

_logger = logging.getLogger("specscope")


def register() -> None:
    """Say once that vLLM is not traced by this version; vLLM requires that this never raises."""
    _logger.info("specscope: vLLM is not traced by this version; the engine runs unchanged")
