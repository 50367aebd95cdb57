"""HTTP calls that another thread can end: their connection is shut while they wait for an answer.

requests keeps which connection it uses to itself. So each connection asks, when it is used, which
call it is used for; a call is made by one thread, from the first byte sent to the last one read.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from typing import Any, TypeVar

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection

from workers.deadline import Deadline

T = TypeVar("T")

_this_thread = threading.local()
# Guards whose a connection is, and that a socket being shut is not closed meanwhile, after which
# its number could be another's. Reentrant, since the garbage collector closes connections anywhere.
_lock = threading.RLock()


class EndableCall:
    """One call, and the connection it uses as soon as it has one."""

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self._is_ended = False

    @contextmanager
    def made_here(self) -> Iterator[None]:
        """What this thread sends inside the block, by an `EndableAdapter`, is this call's."""
        _this_thread.call = self
        try:
            yield
        finally:
            del _this_thread.call

    def end(self) -> None:
        """Shut its connection, and let it begin no other.

        The server sees the connection close, and the thread that waits for it gets an error. A call
        that is being connected ends once it is.
        """
        with _lock:
            self._is_ended = True
            # An answered call's connection may be another's by now.
            if self._connection is not None and self._connection.call is self:
                self._connection.shut()

    def use(self, connection: "_Connection") -> None:
        with _lock:
            if self._is_ended:
                raise ConnectionAbortedError("The call was ended.")
            self._connection = connection
            connection.call = self


def within(deadline: Deadline, seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns or raises, or TimeoutError once `seconds` have passed or it is cut.

    The timeouts of requests are for one read each, and name resolution has none, so a server that
    sends a byte at a time outlasts any of them. A call given up goes on in its thread until then;
    one that is cut loses its connection.
    """
    future: Future[T] = Future()
    endable = EndableCall()

    def run() -> None:
        try:
            with endable.made_here():
                result = call()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            _settle(future, error=error)
        else:
            _settle(future, result)

    def end() -> None:
        _settle(future, error=TimeoutError())
        endable.end()

    threading.Thread(target=run, name="server-call", daemon=True).start()
    with deadline.on_cut(end):
        return future.result(seconds)


def _settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    with contextlib.suppress(InvalidStateError):  # what came first holds
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class EndableAdapter(HTTPAdapter):
    """requests' adapter, with connections that know their call. Behind SOCKS they do not."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*arguments, **options)
        if isinstance(manager, ProxyManager):
            manager.pool_classes_by_scheme = _POOLS
        return manager


class _Connection(HTTPConnection):
    call: EndableCall | None = None

    def connect(self) -> None:
        super().connect()
        self._ask()

    def request(self, *arguments: Any, **options: Any) -> None:
        self._ask()
        super().request(*arguments, **options)

    def close(self) -> None:
        with _lock:
            super().close()

    def shut(self) -> None:
        """As `close`, from another thread than its user's."""
        if self.sock is None:
            return
        # Shut and not closed, or the number would be free for another file while it is read from.
        descriptor = self.sock.fileno()
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(descriptor)) as shared,
        ):
            shared.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        call: EndableCall | None = getattr(_this_thread, "call", None)
        if call is not None:
            call.use(self)


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _SecurePool}
