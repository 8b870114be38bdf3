"""The blocking worker: an `AsyncWorker` that lives in a thread of its own.

What it does and when is said in worker.py; here is only the way over the threads. The thread runs
an event loop while the worker is entered, whatever the caller does meanwhile. It does not survive
a fork: a child has the object and an end of the connection, but not the thread. It must not use the
one, and keeps the card alive by the other. Enter a worker after forking.

An interrupt may come at any moment, and mostly comes while the caller waits for the thread. Then
the thread is given up: whatever it does is cancelled, or never begun, and waited for. (anyio's own
portal, at this writing, waits for ever where it is interrupted while its loop starts.)
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.from_thread import BlockingPortal

from discoveryd.client.errors import DiscoverydError
from discoveryd.client.workers.worker import AsyncWorker
from discoveryd.interface import Verdict


class Worker:
    """Publishes `card` and holds it between entering and leaving.

    Arguments, errors and promises are those of `AsyncWorker`. Methods may be called from several
    threads, while it is entered. An interrupt (Ctrl-C) while it is entered or left leaves no card.
    """

    def __init__(  # noqa: PLR0913  # those of AsyncWorker
        self,
        card: Mapping[str, object],
        *,
        file: str | None = None,
        socket: str | None = None,
        directory: str | None = None,
        waiting: bool = False,
        patience: float | None = 10.0,
    ) -> None:
        self._worker = AsyncWorker(
            card,
            file=file,
            socket=socket,
            directory=directory,
            waiting=waiting,
            patience=patience,
        )
        self._thread = threading.Thread(target=self._run, name="discoveryd worker", daemon=True)
        self._portal: BlockingPortal | None = None
        self._scope: anyio.CancelScope | None = None
        self._given_up = False
        self._entered: Future[None] = Future()
        self._fault: Exception | None = None

    def __enter__(self) -> Self:
        """Publish the card, hold it, and wait for the first verdict; raises as AsyncWorker does."""
        if self._thread.ident is not None:
            raise RuntimeError("this worker has been entered before")
        try:
            self._thread.start()
            self._entered.result()
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Withdraw the card, and end hold and thread. What went wrong in the thread is raised."""
        portal = self._portal
        try:
            if portal is not None:
                # Where the thread broke, there is nothing left to stop.
                with suppress(RuntimeError):
                    portal.call(portal.stop)
            self._thread.join()
        except BaseException:
            self._give_up()
            raise
        fault = self._fault
        if fault is not None and not (error is not None and isinstance(fault, DiscoverydError)):
            raise fault

    @property
    def path(self) -> str:
        """The card file."""
        return self._worker.path

    @property
    def verdict(self) -> Verdict:
        """What the daemon said of the card last."""
        return self._worker.verdict

    @property
    def connected(self) -> bool:
        """Whether the card is held now, so that the verdict is the present one."""
        return self._worker.connected

    def wait_changed(self, timeout: float | None = None) -> Verdict | None:
        """Return the verdict when it, or `connected`, has changed since this returned last.

        None where that does not happen within `timeout` seconds.
        """
        return self._calls().call(self._changed_within, timeout)

    def serving(self) -> None:
        """Return once the card serves its present content; raises NotServing as AsyncWorker."""
        self._calls().call(self._worker.serving)

    def update(self, card: Mapping[str, object]) -> Verdict:
        """Make `card` the card, in the same file, and return what becomes of it."""
        return self._calls().call(self._worker.update, card)

    def accept(self, accepting: bool) -> None:
        """Let the worker take new requests, or drain; every other member of the card stays."""
        self._calls().call(self._worker.accept, accepting)

    async def _changed_within(self, timeout: float | None) -> Verdict | None:  # noqa: ASYNC109 - the caller has no scope to put around it
        with anyio.move_on_after(timeout):
            return await self._worker.changed()
        return None

    def _calls(self) -> BlockingPortal:
        if self._portal is None or not self._thread.is_alive():
            raise RuntimeError("this worker is not entered, or has been left")
        return self._portal

    def _give_up(self) -> None:
        """End the thread from wherever it is, also before its event loop runs."""
        self._given_up = True
        if self._portal is not None and self._scope is not None:
            with suppress(RuntimeError):
                self._portal.call(self._scope.cancel)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Be the thread."""
        try:
            anyio.run(self._live)
        except Exception as fault:  # noqa: BLE001 - the caller's thread raises it
            self._fault = fault
        if not self._entered.done():
            self._entered.set_exception(self._fault or RuntimeError("the worker was given up"))

    async def _live(self) -> None:
        fault: Exception | None = None
        async with BlockingPortal() as portal:
            with anyio.CancelScope() as self._scope:
                self._portal = portal
                if self._given_up:
                    self._scope.cancel()
                try:
                    async with self._worker:
                        self._entered.set_result(None)
                        await portal.sleep_until_stopped()
                except Exception as broken:  # noqa: BLE001 - raised below
                    fault = broken
        # Only here, since the portal would have wrapped it.
        if fault is not None:
            raise fault
