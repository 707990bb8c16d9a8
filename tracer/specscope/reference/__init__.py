"""``specscope fingerprint``: what a target's hidden states are at given tokens, by plain transformers.

torch, transformers and safetensors are imported only when it runs (``pip install 'specscope[replay]'``).
"""

from __future__ import annotations


class Problem(Exception):
    """Why no reference can be made; the message says what, where and what to do."""
