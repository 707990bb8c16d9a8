"""Stage 1: two of the three domains' text, the tokenizer, and their token ids.

Licence text: the paragraphs of Debian's common licences, one per line (unwrapped text
is far more predictable). Docstrings: those of Python's standard library in a chat
frame, the signature as the user's turn and the docstring as the answer. Signatures
are held out by hash, the same ones in every run.

Deterministic for the same licences and the same Python. Writes to the work folder:
`tokenizer.json`, and `tokens.json` with lists of token ids per document.
"""

import argparse
import ast
import hashlib
import json
import re
import sysconfig
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>"]
PAD, BOS, EOS, USER, ASSISTANT = range(5)
VOCABULARY = 1024
HELD_OUT_PERCENT = 4
LICENCES = Path("/usr/share/common-licenses")
SKIPPED = ("site-packages", "test", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "ensurepip")


def paragraphs(text):
    return [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text)]


def licence_paragraphs(folder):
    """[(file name, [paragraph, ...]), ...] of the real files in `folder`; links would repeat them."""
    found = []
    for file in sorted(folder.iterdir()):
        if file.is_symlink() or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace").replace("\f", "").replace("\t", " ")
        found.append((file.name, [part for part in paragraphs(text) if len(part) > 20]))
    return found


def docstrings(folder):
    """[(signature, docstring), ...] of every documented function and class below `folder`, each text once."""
    found, seen = [], set()

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                walk(child, prefix)
                continue
            if isinstance(child, ast.ClassDef):
                signature = f"class {prefix}{child.name}"
            else:
                arguments = ", ".join(argument.arg for argument in child.args.args)
                signature = f"def {prefix}{child.name}({arguments})"
            text = ast.get_docstring(child)
            if text and text.isascii() and len(text) > 20:
                body = "\n\n".join(paragraphs(text))[:600]
                if body not in seen:
                    seen.add(body)
                    found.append((signature, body))
            walk(child, f"{prefix}{child.name}.")

    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder).as_posix()
        if any(part in name for part in SKIPPED):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # a few library files are broken or oddly encoded on purpose
            continue
        walk(tree, name[:-3].replace("/", ".").replace(".__init__", "") + ".")
    return found


def held_out(signature):
    return int(hashlib.md5(signature.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # The whole byte alphabet, so that any input can be encoded.
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B:1", special_tokens=[("<|bos|>", BOS)]
    )
    return tokenizer


def chat(encode, signature, body):
    return [BOS, USER, *encode(signature), ASSISTANT, *encode(body), EOS]


def stdlib_folder():
    """The running Python's own library, also inside a virtual environment."""
    return Path(sysconfig.get_paths()["stdlib"])


def build(work, licences=LICENCES, stdlib=None):
    stdlib = stdlib or stdlib_folder()
    licence, documented = licence_paragraphs(licences), docstrings(stdlib)
    if not licence or not documented:
        raise SystemExit(f"corpus: no licence text in {licences} or no docstrings in {stdlib}; name others")
    trained = [pair for pair in documented if not held_out(pair[0])]
    unseen = [pair for pair in documented if held_out(pair[0])]
    texts = [part for _, parts in licence for part in parts] * 2 + [f"{a}\n{b}" for a, b in trained]
    tokenizer = train_tokenizer(texts)
    work.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(work / "tokenizer.json"))

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    tokens = {
        "licence": [[BOS, *encode("\n".join(parts)), EOS] for _, parts in licence],
        "docstring": [chat(encode, *pair) for pair in trained],
        "held_out": [chat(encode, *pair) for pair in unseen],
    }
    (work / "tokens.json").write_text(json.dumps(tokens), encoding="utf-8")
    for name, documents in tokens.items():
        print(f"{name}: {len(documents)} documents, {sum(map(len, documents))} tokens", flush=True)
    counts = Counter(i for document in tokens["licence"] * 2 + tokens["docstring"] for i in document)
    total, common = sum(counts.values()), [n for _, n in counts.most_common()]
    print("coverage of the most common ids:", {k: round(sum(common[:k]) / total, 4) for k in (512, 640, 768)})


def add_arguments(parser):
    parser.add_argument("--licences", type=Path, default=LICENCES, help="folder of licence texts")
    parser.add_argument("--stdlib", type=Path, help="folder of Python sources (default: this Python's library)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder to write")
    add_arguments(parser)
    options = parser.parse_args()
    build(options.work, options.licences, options.stdlib)
