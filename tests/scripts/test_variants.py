"""Faulty drafts are the healthy one with exactly one thing changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import variants
from scripts.variants import CONFIG, TINY_DRAFT, VARIANTS, WEIGHTS, VariantError, read_tensors, write_variant


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def _tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    header, data = read_tensors(folder / WEIGHTS)
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], data[entry["data_offsets"][0] : entry["data_offsets"][1]])
        for name, entry in header.items()
    }


@pytest.mark.parametrize("name", ["seed-fault", "wrong-layers"])
def test_a_configuration_fault_changes_one_key_and_no_tensor(name: str, tmp_path: Path) -> None:
    written = write_variant(name, tmp_path / "draft")
    changed = _config(written)
    assert changed.pop("eagle_config") == VARIANTS[name].config["eagle_config"]
    assert changed == _config(TINY_DRAFT)
    assert (written / WEIGHTS).read_bytes() == (TINY_DRAFT / WEIGHTS).read_bytes()


def test_the_seed_fault_is_the_one_of_the_report(tmp_path: Path) -> None:
    written = write_variant("seed-fault", tmp_path / "draft")
    assert _config(written)["eagle_config"] == {"use_aux_hidden_state": False}


def test_a_lost_map_leaves_every_other_tensor_as_it_was(tmp_path: Path) -> None:
    written = write_variant("no-d2t", tmp_path / "draft")
    healthy, faulty = _tensors(TINY_DRAFT), _tensors(written)
    del healthy["d2t"]
    assert faulty == healthy
    assert _config(written) == _config(TINY_DRAFT)
    header, data = read_tensors(written / WEIGHTS)
    ends = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    assert [start for start, _ in ends] == [
        0,
        *(end for _, end in ends[:-1]),
    ]  # no hole, as the format demands
    assert ends[-1][1] == len(data)


def test_lost_weights_are_one_renamed_and_one_gone(tmp_path: Path) -> None:
    healthy, faulty = _tensors(TINY_DRAFT), _tensors(write_variant("lost-weights", tmp_path / "draft"))
    del healthy["midlayer.self_attn.k_proj.weight"]
    healthy["midlayer.self_attn.out_proj.weight"] = healthy.pop("midlayer.self_attn.o_proj.weight")
    assert faulty == healthy


def test_an_object_in_the_configuration_is_merged_key_by_key(tmp_path: Path) -> None:
    source = write_variant("wrong-layers", tmp_path / "source")
    written = write_variant("seed-fault", tmp_path / "draft", source)
    assert _config(written)["eagle_config"] == {
        "use_aux_hidden_state": False,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    }


def test_an_earlier_variant_is_replaced_and_the_source_kept(tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in TINY_DRAFT.iterdir()}
    write_variant("no-d2t", tmp_path / "draft")
    write_variant("seed-fault", tmp_path / "draft")
    assert "d2t" in _tensors(tmp_path / "draft")
    assert {file.name: file.read_bytes() for file in TINY_DRAFT.iterdir()} == before


def test_every_variant_names_a_fault_class_and_its_effect() -> None:
    for variant in VARIANTS.values():
        assert variant.fault_class[0] == "F"
        assert 1 <= int(variant.fault_class[1:]) <= 24
        assert len(variant.effect) > 40
        assert variant.config or variant.dropped_tensors


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"unknown variant 'sedd-fault'.*seed-fault.*no-d2t"):
        write_variant("sedd-fault", tmp_path / "draft")


def test_a_source_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / CONFIG).write_text("{}", encoding="utf-8")
    with pytest.raises(VariantError, match=r"it lacks model\.safetensors; name one with --source"):
        write_variant("seed-fault", tmp_path / "draft", tmp_path / "source")


def test_a_tensor_that_is_not_there_cannot_be_dropped(tmp_path: Path) -> None:
    source = write_variant("no-d2t", tmp_path / "source")
    with pytest.raises(VariantError, match=r"holds no tensor d2t; it has .*fc\.weight"):
        write_variant("no-d2t", tmp_path / "draft", source)


def test_somebody_elses_folder_is_never_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work", encoding="utf-8")
    with pytest.raises(VariantError, match="holds something else than a draft"):
        write_variant("seed-fault", tmp_path)
    assert precious.read_text(encoding="utf-8") == "years of work"


def test_the_source_itself_is_no_destination() -> None:
    with pytest.raises(VariantError, match="is the source itself"):
        write_variant("seed-fault", TINY_DRAFT)


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert variants.main(["seed-fault", str(tmp_path / "draft"), "--source", str(tmp_path)]) == 2
    assert "is no draft checkpoint" in capsys.readouterr().err
    assert variants.main(["seed-fault", str(tmp_path / "draft")]) == 0
    assert variants.main(["--list"]) == 0
    assert "seed-fault (F04)" in capsys.readouterr().out
