"""Threads that do what may block, kept for the next time, one for each who has such work.

A look at the disk and a commit of the ledger take some dozen microseconds; a pool that serves
everybody, with a limit to be asked for and a context to be copied, would take several times that
to hand them over. And whoever has a thread of his own never waits for a place in a pool whose
threads all hang in somebody else's file system.

A call that nobody waits for any longer is left to its thread, which ends when it does: the next
call has a new one, since nobody can say when a file system that hangs will answer. So do those that
were waiting behind it, or they would hang with it. No thread keeps the process from ending.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_Call = tuple["asyncio.Future[Any]", Callable[[], Any]]
_Calls = SimpleQueue[_Call | None]


class OwnThread:
    """One thread, begun when it is first needed. All methods are the loop's.

    It ends by `end`, or when nobody has this object any more.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls | None = None
        self._ending: Callable[[], object] = _nothing

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Return what `call` returns in the thread, or raise what it raises.

        One after another, in the order of asking. Cancelled, it leaves the call alone at once,
        which goes on unheard if it has begun; whose turn has not come need not wait for it.
        """
        if self._calls is None:
            self._begin()
        calls = self._calls
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        if calls is not None:
            calls.put((future, call))
        try:
            return await future
        except asyncio.CancelledError:
            if calls is self._calls:
                self._leave()
            raise

    def end(self) -> None:
        """Let the thread end once it has nothing left to do. Another `run` begins a new one."""
        self._ending()
        self._calls, self._ending = None, _nothing

    def _leave(self) -> None:
        """Leave the thread to what it does, and have another do what it has not begun."""
        calls = self._calls
        self._calls = None
        waiting: list[_Call] = []
        while calls is not None:
            try:
                item = calls.get_nowait()
            except Empty:
                break
            if item is not None and not item[0].done():
                waiting.append(item)
        self._ending()
        self._ending = _nothing
        if waiting:
            self._begin()
        for item in waiting:
            if self._calls is not None:
                self._calls.put(item)

    def _begin(self) -> None:
        calls: _Calls = SimpleQueue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_work, args=(calls, loop), name=self._name, daemon=True).start()
        self._calls = calls
        ending = weakref.finalize(self, calls.put, None)
        ending.atexit = False
        self._ending = ending


def _work(calls: _Calls, loop: asyncio.AbstractEventLoop) -> None:
    while (item := calls.get()) is not None:
        future, call = item
        result, fault = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001  # whatever it is, it is raised on the loop
            fault = raised
        try:
            loop.call_soon_threadsafe(_settle, future, result, fault)
        except RuntimeError:
            # The loop is closed: nobody will ever ask.
            return
        # Nothing of a call is kept until the next.
        del item, future, call, result, fault


def _settle(future: "asyncio.Future[Any]", result: object, fault: BaseException | None) -> None:
    if future.done():
        return
    if fault is None:
        future.set_result(result)
    else:
        future.set_exception(fault)


def _nothing() -> None:
    """End nothing."""
