"""One of everything in a workspace, with a word of its own in every text and a number in every count.

Two workspaces told so share every id that can be shared: instance, process, request, trace, reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from specscope import hidden, reference_file
from specscope.chunks import StepRow
from specscope_server.auth.model import Act
from specscope_server.diagnosis.model import Finding, Number
from specscope_server.store.model import (
    AlertRow,
    ExpectationRow,
    ExpectationScope,
    SilenceRow,
    TokenizerRow,
)
from specscope_server.store.port import NewDelivery, Store
from specscope_server.store.told import LogBatch, RequestTotals, SpanBatch
from specscope_server.store.values import engine_uid, to_ns

from storekit import facts
from storekit.references import IDS, file, passage, rows, states

UID, TRACE, RID, RESPONSE = "5eed" * 8, "ab" * 16, "rid-shared", "answer-shared"
REFERENCE = "5afe" * 4
TOKENIZER = "5e7a" * 4
SILENCE = "5117" * 4
SECONDS = 12
"""Before ``now`` that things happened."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, and what nobody else must ever see of it."""

    name: str
    word: str
    number: int
    """Of four digits and more, so that it is found in any answer that counts it in."""

    @property
    def engine(self) -> str:
        """Return the uid of its one engine."""
        return engine_uid(self.name, "test", "launch")


def fill(store: Store, mine: Workspace, now: datetime) -> None:
    """Tell one of everything, as of ``now``."""
    ns, word, number = to_ns(now), mine.word, mine.number
    start, end = ns - SECONDS * facts.SECOND, ns - (SECONDS - 2) * facts.SECOND

    def step(index: int) -> StepRow:
        return facts.step(index, t=start + index, context=number, draft_tokens=[number], committed=number)

    looked = rows(states(tokens=len(IDS)), max_abs=float(number))
    totals = RequestTotals(
        verify_steps=number,
        drafted_depth=3 * number,
        drafted_nodes=3 * number,
        accepted=number // 10,
        bonus=number,
        committed=number,
        zero_accept_steps=number // 2,
        prefill_passes=1,
    )
    bucket_ago = (facts.NOW_NS // facts.SECOND // 10 * 10) - (ns // facts.SECOND // 10 * 10) + 10
    request = facts.request(
        UID,
        rid=RID,
        trace_id=TRACE,
        response_id=RESPONSE,
        model=f"model {word}",
        finish_reason=word,
        arrival_ns=start,
        end_ns=end,
        totals=totals,
        output_tokens=number,
    )
    started = ns - 3600 * facts.SECOND
    config = {"draft": word, "tokenizers": {"target": {"file": "tokenizer.json", "hash": f"hash of {word}"}}}
    told = facts.batch(
        replace(facts.REPORT, event_ns=started, model=f"model {word}", config=config),
        request,
        facts.request("health", kind="health_check", arrival_ns=start, end_ns=end, model=word, trace_id=""),
        facts.chunk(
            UID,
            steps=[step(0), step(1)],
            extends=[facts.extend(1)],
            looks=looked,
            start_ns=start,
            end_ns=end,
        ),
        facts.prompt(UID, ids=IDS),
        facts.increment(1, bucket_ago, steps=number, drafted_depth=3 * number, accepted=number, bonus=number),
        facts.hidden_increment(2, {facts.PLACE: facts.looks(number)}, bucket_ago),
        replace(
            facts.heartbeat(boundaries=facts.crossings("draft.fc", "target_fed", number, eager=0)),
            event_ns=ns - facts.SECOND,
            armed={"draft.fc": (True, ""), "draft.map": (False, f"why not {word}")},
            dropped={word: number},
            requests={"user": number},
        ),
        workspace=mine.name,
        service_name=f"service {word}",
        start_ns=started,
    )
    span = facts.span(
        1,
        TRACE,
        name=f"span {word}",
        attributes={"told": word},
        request_id=RID,
        response_id=RESPONSE,
        start_ns=start,
        end_ns=end,
    )
    elsewhere = replace(span, trace_id="cd" * 16, name=f"joined {word}")
    record = facts.log_record(1, TRACE, body=f"log {word}", time_ns=start)
    store.write([told, SpanBatch(mine.name, (span, elsewhere)), LogBatch(mine.name, (record,))], now)
    found = Finding(
        *("draft_silent", "F05", "critical", "certain", f"title {word}", f"sentence {word}"),
        (Number("crossed", number, number, link=f"/engines/{mine.engine}"),),
    )
    store.replace_findings(mine.engine, [found], now)
    alert = AlertRow("silent_path", f"rule {word}", mine.engine, "", "firing", f"reason {word}", now, now)
    store.set_alerts(
        [alert],
        [NewDelivery("silent_path", mine.engine, "firing", f"to {word}", {"text": word})],
        {(mine.engine, "silent_path"): {"findings": [], "state": f"evidence {word}"}},
    )
    store.acknowledge(mine.name, mine.engine, "silent_path", f"who {word}", "", now)
    store.set_rule(mine.name, "silent_path", {"title": f"changed {word}"}, now)
    until = now + timedelta(hours=1)
    store.add_silence(
        mine.name, SilenceRow(SILENCE, "", f"engine {word}", now, until, now, word, f"comment {word}")
    )
    blob = file(passage({hidden.FED: states(tokens=len(IDS))}, name=f"sequence {word}"))
    header, sequences = reference_file.read(blob.splitlines())
    store.add_reference(
        mine.name, REFERENCE, replace(header, made_with={"specscope": word}), sequences, number, now
    )
    store.add_tokenizer(
        mine.name, TokenizerRow(TOKENIZER, now, f"tokenizer {word}", number, number), word.encode()
    )
    scope = ExpectationScope(engine=f"service {word}", model=f"model {word}", workload=f"context={word}")
    store.set_expectation(
        mine.name,
        ExpectationRow(scope, "learned", (0.5,), number, 1.5, f"who {word}", now, f"note {word}", (now, now)),
    )
    # Who may do what is no read of the store's: servers without a sign-in stay so unless a test adds them.
    store.accounts.note(Act(now, mine.name, f"who {word}", f"action {word}", f"what {word}", "::1"))
