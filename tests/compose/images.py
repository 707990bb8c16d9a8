"""Stand-ins for the two images that docker-compose.yml takes from a registry.

They are made from Debian's own packages and carry the official names, so the shipped
files are tested as they are. What belongs to this machine alone, its certificates and
the place of its ready-made wheels, goes into the stand-in and never into a shipped file.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts.system import run
from tests.compose.daemon import PATH

BASE = "debian:bookworm-slim"
POSTGRES = "postgres:17"
LOCAL_CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""Where Debian keeps the certificates that an administrator added."""
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def make_base(work: Path, find_links: str, env: Mapping[str, str], log: Path) -> None:
    """Make `BASE`: a minimal Debian 12 with this machine's certificates.

    `find_links` is a URL where pip finds ready-made wheels as well, or empty.

    Raises SetupError when a step fails.
    """
    tree = work / "rootfs"
    bootstrap = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", tree]
    run(bootstrap, "making a minimal Debian (about 40 s)", log, {"PATH": PATH})
    certificates = sorted(LOCAL_CERTIFICATES.glob("*.crt"))
    for certificate in certificates:
        shutil.copy(certificate, tree / LOCAL_CERTIFICATES.relative_to("/"))
    if certificates:
        run(
            ["chroot", tree, "update-ca-certificates"],
            "adding this machine's certificates",
            log,
            {"PATH": PATH},
        )
    # pip brings certificates of its own; the system's are the ones that hold the added ones.
    settings = ["[global]", f"cert = {BUNDLE}"] + ([f"find-links = {find_links}"] if find_links else [])
    (tree / "etc/pip.conf").write_text("\n".join(settings) + "\n", encoding="utf-8")
    archive = work / "rootfs.tar"
    run(["tar", "--directory", tree, "--create", "--file", archive, "."], "packing it", log)
    run(["docker", "import", archive, BASE], f"importing it as {BASE}", log, env)
    archive.unlink()
    shutil.rmtree(tree)


def make_postgres(env: Mapping[str, str], log: Path) -> None:
    """Make `POSTGRES` from Debian's PostgreSQL. Raises SetupError when a step fails."""
    folder = Path(__file__).resolve().parent / "postgres"
    build = ["docker", "build", "--network", "host", "--tag", POSTGRES, folder]
    run(build, f"making {POSTGRES} from Debian's PostgreSQL", log, env)


@contextmanager
def wheels(python: Path) -> Generator[str]:
    """Serve the folder of ready-made wheels that pip is set up with here, on loopback; yield its URL.

    Yields an empty string where pip has no such folder, as on most machines. An image
    cannot see a folder of the host while it is built, but it can reach loopback.
    """
    command = [python, "-m", "pip", "config", "get", "global.find-links"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    folders = [entry for entry in asked.stdout.split() if Path(entry).is_dir()]
    if not folders:
        yield ""
        return
    handler = functools.partial(_Quiet, directory=folders[0])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep the progress readable: pip's requests are in the build's log."""
