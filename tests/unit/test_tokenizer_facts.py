"""What a checkpoint's tokenizer files count: alike where every id means the same token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from specscope import tokenizer_facts

TINY = Path(__file__).parents[2] / "models" / "tiny"
BPE: dict[str, Any] = {
    "model": {"vocab": {"a": 0, "b": 1, "ab": 2}},
    "added_tokens": [{"id": 3, "content": "<s>"}],
}


def told(folder: Path, name: str = "tokenizer.json", **content: Any) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content), "utf-8")
    tokenizer_facts.of.cache_clear()
    return tokenizer_facts.of(str(folder))


def test_the_same_vocabulary_has_one_hash_however_it_is_written(tmp_path: Path) -> None:
    first = told(tmp_path / "a", **BPE)
    assert first == {"file": "tokenizer.json", "hash": first["hash"], "tokens": 4}
    turned = {"b": 1, "ab": 2, "a": 0, "<s>": 3}
    again = told(tmp_path / "b", version="2", model={"type": "BPE", "vocab": turned, "merges": ["a b"]})
    assert again == first


@pytest.mark.parametrize(
    "vocab", [{"a": 0, "b": 2, "ab": 1}, {"a": 0, "b": 1, "aB": 2}, {"a": 0, "b": 1, "ab": 2, "c": 4}]
)
def test_one_id_that_means_another_token_shows(tmp_path: Path, vocab: dict[str, int]) -> None:
    other = told(tmp_path / "b", model={"vocab": vocab}, added_tokens=BPE["added_tokens"])
    assert other["hash"] != told(tmp_path / "a", **BPE)["hash"]


def test_a_unigram_vocabulary_counts_by_its_order(tmp_path: Path) -> None:
    first = told(tmp_path / "a", model={"vocab": [["a", -1.5], ["b", -2.0]]})
    assert first["hash"] == told(tmp_path / "b", model={"vocab": {"a": 0, "b": 1}})["hash"]


def test_other_files_are_taken_where_there_is_no_tokenizer_json(tmp_path: Path) -> None:
    assert told(tmp_path / "a", "vocab.json", a=0, added_tokens=1)["tokens"] == 2
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tokenizer.model").write_bytes(b"\x0a\x03")
    found = tokenizer_facts.of(str(tmp_path / "b"))
    assert found is not None and set(found) == {"file", "hash"}


@pytest.mark.parametrize(
    "content", [{}, {"model": 3}, {"model": {"vocab": 3}}, {"model": {"vocab": {"a": "x"}}}]
)
def test_a_file_that_is_none_is_not_told(tmp_path: Path, content: dict[str, Any]) -> None:
    assert told(tmp_path / "a", **content) is None


def test_what_is_not_there_or_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tokenizer_facts.of("somebody/model-of-a-hub") is None
    monkeypatch.setattr(tokenizer_facts, "MAX_BYTES", 10)
    assert told(tmp_path / "a", **BPE) is None


def test_the_tiny_pairs_count_other_tokens(tmp_path: Path) -> None:
    first = tokenizer_facts.of(str(TINY / "target"))
    second = tokenizer_facts.of(str(TINY / "second" / "target"))
    assert first is not None and second is not None
    assert first["tokens"] > 900
    shutil.copytree(TINY / "target", tmp_path / "copy", ignore=shutil.ignore_patterns("*.safetensors"))
    assert tokenizer_facts.of(str(tmp_path / "copy")) == first
    assert tokenizer_facts.of(str(TINY / "draft")) is None
