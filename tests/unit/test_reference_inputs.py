"""What ``specscope fingerprint`` is given: prompts, checkpoints, layers; and what it says without torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from specscope.reference import Problem, checkpoint, prompts
from specscope.reference.checkpoint import aux_layers

TINY = Path(__file__).parents[2] / "models" / "tiny"


def read(tmp_path: Path, text: str) -> list[prompts.Prompt]:
    path = tmp_path / "prompts"
    path.write_text(text, "utf-8")
    return prompts.read(path)


def test_a_list_and_lines_are_read_alike(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"ids": [1, 2], "continuation": [3], "name": "one"},
        {"text": "Repeat", "id": 7},
        {"prompt": [4], "ref": [5], "acc": [1]},
    ]
    wanted = [("one", (1, 2), "", (3,)), ("7", None, "Repeat", ()), ("2", (4,), "", (5,))]
    for text in (json.dumps(entries), "\n\n".join(map(json.dumps, entries))):
        found = read(tmp_path, text)
        assert [(one.name, one.ids, one.text, one.continuation) for one in found] == wanted
    (text_too,) = prompts.tokenised(found[1:2], lambda text: [len(text)])
    assert text_too.ids == (6,)


def test_the_tiny_models_own_files_are_read() -> None:
    first = prompts.read(TINY / "prompts-with-references.json")
    assert (len(first), len(first[0].ids or ()), len(first[0].continuation)) == (18, 25, 48)
    second = prompts.read(TINY / "prompts.json")
    assert (len(second), second[0].name) == (60, "licence-00")
    assert second[0].ids and second[0].continuation


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 prompts"),
        ("[]", "has 0 prompts"),
        ('{"ids": [1]}\nhello', "line 2 of .* is not JSON"),
        ("[3]", "prompt 0 of .* is no JSON object: '3'"),
        ('[{"ids": [1]}, {}]', "prompt 1 of .* has neither 'ids'"),
        ('[{"ids": [1, "a"]}]', "no list of whole numbers"),
        ('[{"ids": [1], "continuation": "a"}]', "no list of whole numbers"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"ids": [1]}, {"ids": [1], "name": "\\ud800"}]', "prompt 1 of .* has half a surrogate pair"),
        ('[{"text": "\\udfff"}]', "prompt 0 of .* has half a surrogate pair"),
    ],
)
def test_prompts_that_make_no_sense_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Problem, match=said):
        read(tmp_path, text)


def test_no_file_of_prompts_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot read the prompts in .*nothing"):
        prompts.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("ids", "said"),
    [((), "has 0 tokens"), ((1,) * 32_700, "has 32700 tokens, 1 to 32668"), ((1, 1024), "the token 1024")],
)
def test_prompts_are_held_against_the_target(ids: tuple[int, ...], said: str) -> None:
    with pytest.raises(Problem, match=said):
        prompts.check([prompts.Prompt("a", ids, "", ())], 1024, 100)


IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("given", "draft", "wanted"),
    [
        (None, None, (2, 4, 5)),
        (None, {}, (2, 4, 5)),
        (None, {"eagle_config": {"use_aux_hidden_state": True}}, (2, 4, 5)),
        (None, {"eagle_config": {IDS: [1, 3, 4]}}, (2, 4, 5)),
        ((0, 7), {"eagle_config": {IDS: [1, 3, 4]}}, (0, 7)),
    ],
)
def test_layers_are_those_that_sglang_captures(
    given: tuple[int, ...] | None, draft: dict[str, Any] | None, wanted: tuple[int, ...]
) -> None:
    assert aux_layers(given, 8, draft) == wanted


@pytest.mark.parametrize(
    ("given", "layers", "draft", "said"),
    [
        ((2, 8), 8, None, "hidden states 2, 8 cannot be captured from a target of 8 layers"),
        ((2, 2), 8, None, "hidden states 2, 2"),
        (None, 8, {"eagle_config": {IDS: [7]}}, "hidden states 8 cannot"),
        (None, 6, None, "hidden states 2, 3, 3 cannot"),
        (None, 8, {"eagle_config": {IDS: "all"}}, "no list of layers"),
        (None, 8, {IDS: [2, 4, 5]}, "outside of eagle_config"),
    ],
)
def test_layers_that_cannot_be_are_named(
    given: tuple[int, ...] | None, layers: int, draft: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(Problem, match=said):
        aux_layers(given, layers, draft)


def test_a_checkpoint_is_told_by_its_files(tmp_path: Path) -> None:
    folder = shutil.copytree(TINY / "target", tmp_path / "target")
    config = checkpoint.configuration(folder)
    found = checkpoint.model(folder, config)
    assert (found.name, found.architecture, found.hidden_size) == ("target", "LlamaForCausalLM", 128)
    assert (found.layers, found.vocab_size, list(found.files)) == (8, 1024, ["model.safetensors"])
    tensors = folder / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\0")
    assert checkpoint.model(folder, config).files != found.files
    tensors.unlink()
    with pytest.raises(Problem, match="has no tensors"):
        checkpoint.model(folder, config)
    with pytest.raises(Problem, match="does not state hidden_size"):
        checkpoint.model(folder, {"num_hidden_layers": 1, "vocab_size": 2})
    (folder / "config.json").write_text("[]")
    with pytest.raises(Problem, match="is no JSON object"):
        checkpoint.configuration(folder)


def specscope(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("specscope"), "fingerprint", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


WHERE = ("--prompts", TINY / "prompts.json", "--out")


def test_without_torch_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    done = specscope("--target", TINY / "target", *WHERE, tmp_path / "out")
    assert done.returncode == 1
    assert "torch cannot be imported" in done.stderr
    assert "pip install 'specscope[replay]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--layers", "2,x"), "--layers '2,x': whole numbers"),
        (("--dtype", "float8"), "--dtype 'float8' is none of float32, bfloat16, float16"),
        (("--send", "localhost:4318"), "--send 'localhost:4318' is no address of a server"),
        (("--send", "http://localhost:abc"), "is no address of a server"),
        (("--send", "http://[::1"), "is no address of a server"),
        (("--out", TINY), "cannot write .*: it is a folder"),
        (("--out", TINY / "prompts.json"), "cannot write .*prompts.json: it is the file of the prompts"),
        (("--draft", TINY), "is no checkpoint: cannot read .*config.json"),
    ],
)
def test_options_that_make_no_sense_are_named(tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    done = specscope("--target", TINY / "target", *WHERE, tmp_path / "out", *more)
    assert done.returncode == 1
    assert re.search(said, done.stderr)
    assert "Traceback" not in done.stderr
