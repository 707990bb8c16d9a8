"""Trouble never reaches the engine: no receiver, nonsense settings, hooks that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from otlp_receiver import Receiver
from sglang_engine import CHAIN, Server, free_port, speculation
from sglang_runs import REFERENCES, traced
from specscope import convention as c
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

PLANTED = '''
"""An SGLang plugin of the tests: makes two callbacks of the tracer fail, one of them a hook's own."""

def register():
    from specscope.engines.sglang import looks, path

    def broken(*_args, **_kwargs):
        raise RuntimeError("planted")

    looks.Looks.fed_prefill = looks.Looks.fed_verify = broken
    path.Path.target_begins = broken
'''


def ask_some(server: Server) -> None:
    """Six references, two of each domain, must continue as they should."""
    for number in (0, 1, 6, 7, 12, 13):
        one = references()[number]
        assert server.generate(f"ref-{number}", one.prompt)["output_ids"] == one.continuation


def test_no_receiver_and_nonsense_settings_do_not_matter(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "SPECSCOPE_ENDPOINT": f"http://127.0.0.1:{port}",
        "SPECSCOPE_DETAIL": "nonsense",
        "SPECSCOPE_QUEUE": "1",
    }
    with Server(tmp_path, speculation(CHAIN), environment) as server:
        ask_some(server)
        ignored, *others = server.ours()
        assert ignored.startswith("specscope: ignored: SPECSCOPE_DETAIL='nonsense'")
        assert any("tracing EAGLE3 at detail steps" in line for line in others)
        # A receiver that comes late hears what was lost meanwhile.
        receiver = Receiver(port)
        told = receiver.wait(
            "a heartbeat that counts all six requests",
            lambda t: (
                t.metric(c.METRIC_EXPORT_FAILURES) > 0 and t.metric(c.METRIC_REQUESTS, kind="user") == 6
            ),
        )
        assert told.metric(c.METRIC_DROPPED) > 0
        receiver.close()


def test_hooks_that_fail_disarm_themselves(tmp_path: Path) -> None:
    info = tmp_path / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nplanted = planted:register\n")
    (tmp_path / "planted.py").write_text(PLANTED)
    receiver = Receiver()
    with Server(tmp_path, speculation(CHAIN), traced(receiver, PYTHONPATH=str(tmp_path))) as server:
        ask_some(server)
        told = receiver.settled([rid for rid in REFERENCES if rid in ("ref-0", "ref-1", "ref-6", "ref-13")])
        lines = server.ours()
    receiver.close()
    assert told.metric(c.METRIC_HOOK_ERRORS, hook="target_forward_batch_generation") == 3
    assert told.metric(c.METRIC_HOOK_ERRORS, hook="hidden_statistics") == 3
    assert sum("planted" in line for line in lines) == 2, "one line a hook, not one an error"
    armed = told.armed()
    assert (
        armed[c.TARGET_VERIFY]
        == "hook target_forward_batch_generation disarmed itself: RuntimeError: planted"
    )
    assert [name for name, reason in armed.items() if reason] == [c.TARGET_VERIFY]
    # What the failing hooks did not carry is still told.
    for number in (0, 13):
        one = told.requests[f"ref-{number}"]
        assert [step.accepted for step in one.counted] == references()[number].accepted
        assert {(row.fed_width, row.fc_ran, row.rows) for row in one.extends} == {(384, 1, None)}
