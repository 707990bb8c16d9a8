"""Sends prompts of all three domains to an SGLang server until it is told to stop.

Standard library only. Settings, by environment:

- ``DEMO_ENGINE``: the server's address, default ``http://127.0.0.1:30000``.
- ``DEMO_INTERVAL``: seconds of pause after each answer, per worker, default 1.
- ``DEMO_WORKERS``: requests in flight, default 2: rows of one batch, as real traffic has.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

PROMPTS = Path(__file__).resolve().parent / "prompts.json"
"""The tiny pair's prompts: licence text, docstrings and copying."""
TOKENS = (16, 64)
"""Fewest and most tokens asked for: answers of unequal length leave a batch at unequal times."""
TIMEOUT_SECONDS = 120.0
RETRY_SECONDS = 5.0


def setting(name: str, default: float) -> float:
    """The number in the environment variable `name`; raises SystemExit naming it when it is none."""
    text = os.environ.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if value < 0:
        raise SystemExit(f"load: {name}={text!r} is not a number of at least 0; leave it out for {default:g}")
    return value


def read_prompts(path: Path = PROMPTS) -> list[tuple[str, list[int]]]:
    """The prompts as (domain, token ids)."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    return [(entry["domain"], entry["prompt"]) for entry in entries]


def send(engine: str, rid: str, prompt: list[int], tokens: int) -> int:
    """Ask `engine` to continue `prompt`; return how many tokens came.

    Raises OSError: the engine cannot be reached or refuses.
    """
    body = {
        "rid": rid,
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
    }
    request = urllib.request.Request(
        f"{engine}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        return int(json.load(answer)["meta_info"]["completion_tokens"])


def work(worker: int, engine: str, interval: float, stop: threading.Event) -> None:
    """Send prompts until `stop` is set, each worker in its own repeatable order."""
    order = random.Random(worker)
    prompts = read_prompts()
    number = 0
    while not stop.is_set():
        domain, prompt = order.choice(prompts)
        rid = f"load-{domain}-{os.getpid()}-{worker}-{number}"
        try:
            tokens = send(engine, rid, prompt, order.randint(*TOKENS))
        except (OSError, ValueError, KeyError) as error:
            reason = (
                error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
            )
            print(f"{rid}: {error} {reason}".rstrip() + f"; next try in {RETRY_SECONDS:g} s", flush=True)
            stop.wait(RETRY_SECONDS)
        else:
            print(f"{rid}: {len(prompt)} prompt tokens, {tokens} tokens answered", flush=True)
            number += 1
            stop.wait(interval)


def main() -> int:
    """Run the workers until SIGTERM or SIGINT."""
    engine = os.environ.get("DEMO_ENGINE", "http://127.0.0.1:30000").rstrip("/")
    interval = setting("DEMO_INTERVAL", 1.0)
    workers = int(setting("DEMO_WORKERS", 2))
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    print(
        f"sending prompts to {engine}: {workers} at a time, a pause of {interval:g} s after each", flush=True
    )
    for worker in range(workers):
        threading.Thread(target=work, args=(worker, engine, interval, stop), daemon=True).start()
    stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
