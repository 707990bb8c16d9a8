"""The wheel holds what it must, and works in clean environments outside the checkout."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import httpx
from serverkit import otlp
from serverkit.command import environment, started
from serverkit.live import PROTOBUF

ROOT = Path(__file__).parents[2]
ROOMS = {
    "specscope": ROOT / "tracer" / "specscope",
    "specscope_server": ROOT / "backend" / "specscope_server",
    "specscope_frontend": ROOT / "frontend" / "specscope_frontend",
    "specscope_migrations": ROOT / "migrations" / "specscope_migrations",
}


def test_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *ROOMS.values()],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    files = [ROOT / n for n in listed if n and "__pycache__" not in n and (ROOT / n).exists()]
    wanted = {
        f"{room}/{path.relative_to(place).as_posix()}"
        for room, place in ROOMS.items()
        for path in files
        if path.is_relative_to(place)
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        names = archive.namelist()
    assert held == wanted
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "specscope/py.typed" in held


def run(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_base_install_is_the_tracer_and_its_command(base: Path, tmp_path: Path) -> None:
    done = run(base / "specscope", "version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("specscope ")
    script = (
        "import json, pkgutil, sys, specscope\n"
        "import specscope.settings, specscope.columns, specscope.recorder, specscope.helper\n"
        "from importlib.metadata import distributions, entry_points\n"
        "names = [d.metadata['Name'].lower() for d in distributions()]\n"
        "hooks = [e.value for e in entry_points(group='sglang.srt.plugins')]\n"
        "print(json.dumps([specscope.__file__, sorted(sys.modules), names, hooks]))\n"
    )
    place, loaded, installed, hooks = json.loads(run(base / "python", "-c", script, cwd=tmp_path).stdout)
    assert not Path(place).is_relative_to(ROOT)
    assert not {"torch", "sglang", "vllm", "fastapi", "sqlalchemy"} & set(loaded)
    assert not {"torch", "fastapi", "sqlalchemy", "uvicorn", "jinja2"} & set(installed)
    assert hooks == ["specscope.engines.sglang.plugin:register"]


def test_base_install_says_what_the_server_needs(base: Path, tmp_path: Path) -> None:
    for command in (["serve"], ["serve", "--port", "0"], ["db", "upgrade"]):
        done = run(base / "specscope", *command, cwd=tmp_path)
        assert done.returncode == 1
        assert "pip install 'specscope[server]'" in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_installed_server_migrates_ingests_and_serves_its_pages(server: Path, tmp_path: Path) -> None:
    options = ("--port", "0", "--db", "run.db")
    with (
        started(*options, cwd=tmp_path, specscope=server / "specscope") as found,
        httpx.Client(base_url=found.url, timeout=60) as client,
    ):
        assert client.get("/healthz").json()["status"] == "ok"
        export = otlp.traces(otlp.engine_span(), otlp.request_span(1), otlp.steps_span(2))
        headers = {"Content-Type": PROTOBUF}
        body = export.SerializeToString()
        assert client.post("/v1/traces", content=body, headers=headers).status_code == 200
        [engine] = client.get("/api/v1/engines").json()["items"]
        pages = ["/", "/requests", "/alerts", f"/requests/{otlp.request_uid(2)}"]
        pages.append(f"/engines/{engine['engine_uid']}")
        assets: set[str] = set()
        for path in pages:
            page = client.get(path)
            assert page.status_code == 200, path
            assert page.headers["content-type"].startswith("text/html")
            assets |= set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
            outside = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:[^"]+)"', page.text)
            assert outside == [], path
        assert any(".js" in asset for asset in assets)
        assert any(".css" in asset for asset in assets)
        for asset in assets:
            answer = client.get(urljoin(found.url, asset))
            assert answer.status_code == 200, asset
            assert answer.content, asset
    done = run(server / "specscope", "db", "check", "--db", "run.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sound" in done.stdout


def test_installed_server_names_the_missing_postgres_driver(server: Path, tmp_path: Path) -> None:
    done = run(server / "specscope", "db", "check", "--db", "postgresql://user@127.0.0.1:1/x", cwd=tmp_path)
    assert done.returncode == 1
    assert "specscope[postgres]" in done.stderr
    assert "Traceback" not in done.stderr
