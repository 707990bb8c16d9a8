"""What is vendored is what was recorded, and the styles use only properties that the design system has."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from specscope_frontend import STATIC, TEMPLATES

from scripts import vendor_assets


def test_vendored_files_are_those_of_the_manifest() -> None:
    assert vendor_assets.problems() == []


def test_a_changed_vendored_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "vendor"
    shutil.copytree(vendor_assets.VENDOR, copy)
    monkeypatch.setattr(vendor_assets, "VENDOR", copy)
    (copy / "htmx.min.js").write_text("changed")
    (copy / "plotly.css").unlink()
    (copy / "extra.js").write_text("new")
    assert vendor_assets.problems() == [
        "htmx.min.js: differs from its recorded SHA-256",
        "plotly.css: missing",
        "extra.js: not in the manifest",
    ]


def test_styles_use_only_properties_that_exist() -> None:
    styles = [(STATIC / name).read_text() for name in ("app.css", "pages.css", "tokens.css")]
    defined = set(re.findall(r"(--[a-z0-9-]+):", "\n".join(styles)))
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", "\n".join(styles)))
    assert used <= defined


def test_templates_have_no_inline_script_or_style() -> None:
    for template in TEMPLATES.rglob("*.html"):
        text = re.sub(r"{#.*?#}", "", template.read_text(), flags=re.DOTALL)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", text), (
            template
        )
        assert not re.search(r"(src|href)=\"(https?:)?//", text), template
