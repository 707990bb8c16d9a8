"""Trains the tiny pair from nothing: corpus, target, draft, export, reference prompts.

Run with the Python of an environment that has torch, tokenizers and safetensors
(`make train-tiny` uses the SGLang one). Every stage is a process of its own and can
be run alone; `--from` goes on at one.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_WORK = HERE.parents[2] / "build" / "tiny"
STAGES = ("corpus", "target-text", "target-copy", "draft-1", "draft-2", "draft-3", "export", "prompts")


def command(stage, work, options):
    """The command line of one stage, without the Python."""
    script, _, argument = stage.partition("-")
    steps = [] if options.steps is None else ["--steps", options.steps]
    match script:
        case "corpus":
            stdlib = ["--stdlib", options.stdlib] if options.stdlib else []
            return ["corpus.py", "--work", work, "--licences", options.licences, *stdlib]
        case "target":
            compiled = ["--compile"] if options.compile else []
            return ["train_target.py", argument, "--work", work, *steps, *compiled]
        case "draft":
            few = [] if options.steps is None else ["--generated", min(24, max(3, options.steps // 25))]
            return ["train_draft.py", argument, "--work", work, *steps, *few]
        case "export":
            return ["export.py", "--work", work]
        case _:
            return ["make_prompts.py", "--pair", work, "--licences", options.licences]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK, help="folder for everything (default: build/tiny)")
    parser.add_argument("--from", dest="first", choices=STAGES, default=STAGES[0], help="go on at this stage")
    parser.add_argument("--steps", type=int, help="steps of each training stage: a few, to try the scripts out")
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    parser.add_argument("--licences", type=Path, default=Path("/usr/share/common-licenses"), help="licence texts")
    parser.add_argument("--stdlib", type=Path, help="Python sources (default: this Python's library)")
    options = parser.parse_args()
    work = options.work.resolve()
    for stage in STAGES[STAGES.index(options.first) :]:
        print(f"== {stage}", flush=True)
        script, *arguments = command(stage, work, options)
        done = subprocess.run([sys.executable, HERE / script, *map(str, arguments)], check=False)
        if done.returncode != 0:
            print(f"stage {stage} failed; mend it and go on with --from {stage}", file=sys.stderr)
            return done.returncode
    print(f"the pair lies in {work / 'target'} and {work / 'draft'}, its prompts in {work / 'prompts.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
