"""What an engine is, what reached it, and the seed's fault: absence told as data."""

from __future__ import annotations

from collections import Counter

import pytest
from sglang_runs import REFERENCES, ChainRun, Run
from specscope import convention as c
from specscope.ledger import gaps
from specscope.records import Crossing, Expectation
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


def test_engine_tells_its_configuration(chain: ChainRun, tree: Run) -> None:
    (config,) = chain.told.engines
    assert config["versions"]["sglang"] == "0.5.23"
    assert set(config["versions"]) == {"sglang", "torch", "transformers", "python"}
    assert config["speculative"] == {
        "algorithm": "EAGLE3",
        "num_steps": 4,
        "topk": 1,
        "num_draft_tokens": 5,
    }
    assert config["capture"] == {"layer_ids": [2, 4, 5], "aux_states": 3, "enabled": True}
    assert config["fc"] == {"in": 384, "out": 128}
    assert config["d2t"] == {"present": True, "draft_vocab": 640}
    assert config["vocab_size"] == 1024
    assert config["draft"]["class"] == "LlamaForCausalLMEagle3"
    assert config["target"]["num_hidden_layers"] == 8
    assert config["arguments"]["max_running_requests"] == 8
    assert not any("api_key" in name or "ssl" in name for name in config["arguments"])
    assert tree.told.engines[0]["speculative"]["topk"] == 4
    resource = chain.told.resources[-1]
    assert (resource[c.ENGINE_NAME], resource[c.ENGINE_VERSION]) == ("sglang", "0.5.23")
    assert (resource[c.ROLE], resource[c.RANK_TP], resource[c.SERVING_ROLE]) == ("scheduler", 0, "both")


def test_warmup_is_no_users_request(chain: ChainRun) -> None:
    told = chain.at_start
    assert told.metric(c.METRIC_REQUESTS, kind="user") == 0
    assert told.metric(c.METRIC_SPECULATION) == 1
    (one,) = told.requests.values()
    assert one.attributes[c.REQUEST_KIND] == c.KIND_WARMUP


def test_health_checks_alone_are_told_apart(chain: ChainRun) -> None:
    told = chain.after_health
    assert told.metric(c.METRIC_REQUESTS, kind="health_check") == 3
    assert told.metric(c.METRIC_REQUESTS, kind="user") == 0
    kinds = Counter(one.attributes[c.REQUEST_KIND] for one in chain.told.requests.values())
    assert kinds[c.KIND_HEALTH_CHECK] == 3 and kinds[c.KIND_WARMUP] == 1
    # They ask for one token: each is a prefill pass, and no draft is expected to be verified.
    for rid, one in chain.told.requests.items():
        if rid.startswith("HEALTH_CHECK"):
            assert (one.steps, one.attributes[c.REQUEST_PREFILLS]) == ([], 1)
            assert (c.TARGET_VERIFY, "") not in one.expected
    (warmup,) = chain.at_start.requests
    assert told.ledger()[0][c.TARGET_VERIFY, ""] == len(chain.told.requests[warmup].steps)


def test_every_request_is_counted_once(chain: ChainRun) -> None:
    assert chain.told.metric(c.METRIC_REQUESTS, kind="user") == len(chain.answers) + 1  # and the aborted one
    assert chain.told.metric(c.METRIC_HOOK_ERRORS) == 0
    assert chain.told.metric(c.METRIC_DROPPED) == 0
    assert chain.told.metric(c.METRIC_ENGINE_THREAD) > 0


def test_requests_add_up_to_the_ledger(seed_fault: Run) -> None:
    """One request at a time: then each pass belongs to one request, and the sums must be equal."""
    expected: Counter[Expectation] = Counter()
    observed: Counter[Crossing] = Counter()
    for one in seed_fault.told.requests.values():
        expected.update(one.expected)
        observed.update(one.observed)
    assert (dict(expected), dict(observed)) == seed_fault.told.ledger()


def test_seed_fault_shows_what_did_not_happen(seed_fault: Run) -> None:
    for number, one in enumerate(references()):
        assert seed_fault.answers[f"ref-{number}"]["output_ids"] == one.continuation
    requests = [seed_fault.told.requests[rid] for rid in REFERENCES]
    for one in requests:
        assert one.extends
        for row in one.extends:
            assert (row.fed_width, row.fc_in, row.fc_ran, row.aux_states) == (128, 384, 0, 0)
    steps = [step for one in requests for step in one.counted]
    assert (sum(step.accepted for step in steps), len(steps)) == (87, 763)
    expected, observed = seed_fault.told.ledger()
    assert expected[c.DRAFT_FC, c.TARGET_FED] > 0
    assert not any(name in (c.DRAFT_FC, c.AUX_CAPTURE) for name, _, _ in observed)
    armed = {name: not reason for name, reason in seed_fault.told.armed().items()}
    found = gaps(
        {key: int(count) for key, count in expected.items()},
        {key: int(count) for key, count in observed.items()},
        armed,
    )
    assert [(gap.boundary, gap.source, gap.observed) for gap in found] == [
        (c.AUX_CAPTURE, "", 0),
        (c.DRAFT_FC, c.TARGET_FED, 0),
    ]
    (config,) = seed_fault.told.engines
    assert config["capture"]["enabled"] is False and config["capture"]["aux_states"] == 0
    assert config["draft"]["eagle_config"] == {"use_aux_hidden_state": False}


def test_below_tokens_no_id_leaves_the_engine(seed_fault: Run) -> None:
    for one in seed_fault.told.requests.values():
        for step in one.steps:
            assert (step.draft_tokens, step.parents, step.output_ids) == (None, None, None)
