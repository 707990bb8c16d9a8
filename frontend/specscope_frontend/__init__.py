"""Templates, static files and figures of the pages; imports nothing of the server or the tracer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).parent / "templates"
"""Folder of the Jinja2 templates."""
STATIC: Final = Path(__file__).parent / "static"
"""Folder of everything served under ``/static``: styles, scripts, icons and the vendored libraries."""
