"""The store: one port, one SQL adapter for SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specscope_server.store.keep import Keep
    from specscope_server.store.port import Store

# The port names the diagnosis' facts and those name the store's, so this package's own start imports
# neither: the functions below fetch what they need when called.


def open_store(url: str, *, keep: Keep | None = None, durable: bool = True) -> Store:
    """Open the database, bring its schema up to date and return the store.

    ``url`` is ``sqlite:///file``, ``postgresql://...`` or the path of a SQLite file. ``keep`` says what is
    deleted and refused for its age, by default nothing. Not ``durable``: a SQLite file may lose what it took
    last when the power goes.

    Raises:
        StoreError: the URL, place, file or schema cannot serve; the message says what to do.
    """
    from specscope_server.store.keep import NOTHING_GOES
    from specscope_server.store.opening import open_store as opened

    return opened(url, keep=NOTHING_GOES if keep is None else keep, durable=durable)


def upgrade(url: str) -> str:
    """Bring the schema up to date and say in a sentence what it is now.

    Raises:
        StoreError: as :func:`open_store`.
    """
    from specscope_server.store.migrate import upgrade as upgraded

    return upgraded(url)


def check(url: str) -> str:
    """Say in a sentence that the database is sound and its schema is this code's; changes nothing.

    Raises:
        StoreError: it is not; the message says what is wrong and what to do.
    """
    from specscope_server.store.migrate import check as checked

    return checked(url)
