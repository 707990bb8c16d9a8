"""The command line: what people see, with the real command."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from specscope import chunks, cli, columns
from specscope.version import __version__
from typer.testing import CliRunner

SPECSCOPE = Path(sys.executable).with_name("specscope")


def specscope(*arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPECSCOPE_", "OTEL_"))
    }
    done = subprocess.run(
        [SPECSCOPE, *arguments], input=stdin, capture_output=True, check=False, env=clean | environ
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_version() -> None:
    done = specscope("version")
    assert (done.returncode, done.stdout) == (0, f"specscope {__version__}, wire version 1\n")


def test_settings_says_what_is_set_and_ignored_but_no_secret() -> None:
    done = specscope(
        "settings",
        SPECSCOPE_ENDPOINT="http://collector:4318",
        SPECSCOPE_HEADERS="authorization=Bearer hunter2",
        SPECSCOPE_DETAIL="loud",
    )
    assert done.returncode == 0
    assert "SPECSCOPE_QUEUE\n    Records kept between the engine and the exporter" in done.stdout
    assert "set: authorization (values not shown)" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "ignored: SPECSCOPE_DETAIL='loud'" in done.stdout
    assert done.stdout.endswith("The tracer sends to http://collector:4318\n")
    assert specscope("settings").stdout.endswith("The tracer is off: SPECSCOPE_ENDPOINT is not set\n")


@pytest.mark.parametrize("form", ["raw", "hex", "stdin"])
def test_decode(tmp_path: Path, form: str) -> None:
    blob = chunks.pack_boundaries({("target.verify", ""): 3}, {("target.verify", "", "eager"): 2})
    file = tmp_path / "blob"
    file.write_bytes(blob.hex().encode() + b"\n" if form == "hex" else blob)
    done = specscope("decode", "-", stdin=blob) if form == "stdin" else specscope("decode", str(file))
    assert done.returncode == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"boundary": "target.verify", "source": "", "mode": "", "expected": 3, "observed": None},
        {"boundary": "target.verify", "source": "", "mode": "eager", "expected": None, "observed": 2},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"hello", "not a packed column blob"),
        (b"53505343zz", "is not hex"),
        (columns.encode({"a": [1]})[:-1], "body does not"),
    ],
)
def test_decode_says_what_is_wrong(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "blob"
    if content is not None:
        file.write_bytes(content)
    done = specscope("decode", str(file))
    assert done.returncode == 1
    assert message in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def app_with(value: str) -> typer.Typer:
    app = typer.Typer()
    app.command()(lambda: None)
    cli.add(app, EntryPoint("extra", value, cli.GROUP))
    return app


def test_without_the_server_a_command_says_how_to_install_it() -> None:
    result = CliRunner().invoke(app_with("not_installed_here.commands:serve"), ["extra", "--port", "1"])
    assert result.exit_code == 1
    assert "needs the server, and 'not_installed_here' is not installed" in result.output
    assert "pip install 'specscope[server]'" in result.output


def test_entry_points_may_be_functions_or_groups() -> None:
    result = CliRunner().invoke(app_with("specscope.cli:version"), ["extra"])
    assert result.output == f"specscope {__version__}, wire version 1\n"
    result = CliRunner().invoke(app_with("specscope.cli:app"), ["extra", "version"])
    assert result.output == f"specscope {__version__}, wire version 1\n"


def test_help_lists_the_servers_commands_too() -> None:
    done = specscope("--help")
    assert done.returncode == 0
    for name in ("version", "settings", "decode", "serve", "db"):
        assert f"\n  {name} " in done.stdout


def test_the_tracers_own_commands_do_not_load_the_server() -> None:
    code = (
        "import sys; sys.argv = ['specscope', 'version']; from specscope.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'specscope_server', 'torch', 'opentelemetry'}\n"
        "print(sorted(heavy & {m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
