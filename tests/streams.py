"""How the tests are dealt to the workers of pytest-xdist (``-n 2``, which `make test` asks for).

A module is dealt as one, because its fixtures are made once. Modules that share an engine of the session
are dealt as one too, or each worker would start its own. What takes long comes first, so that the workers
end at about the same time.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]
from xdist.workermanage import WorkerController  # pyright: ignore[reportMissingTypeStubs]

TOGETHER = {
    f"tests/engines/test_sglang_{name}.py": "the chain and the tree"
    for name in ("confidence", "hidden", "reference", "states", "tokens", "totals")
}
"""Modules that share engines of the session, and a name for them (``tests/architecture`` compares them)."""
LONG = ("tests/engines/", "tests/chaos/", "tests/web/", "tests/packaging/", "tests/wire/")
"""Folders whose modules take longer than their number of tests says, the longest first."""


class Streams(LoadScopeScheduling):
    """Deals modules: those of the ``LONG`` folders first, of one folder the one with most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return TOGETHER.get(module, module)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._length), last=False)
        super()._assign_work_unit(node)

    def _length(self, scope: str) -> tuple[int, int]:
        tests = self.workqueue[scope]
        ranks = [len(LONG) - rank for rank, folder in enumerate(LONG) if next(iter(tests)).startswith(folder)]
        return sum(ranks), len(tests)
