"""One writing of the ledger, in a thread that the loop need not wait for.

A thread that hangs in the kernel cannot be stopped. So the two sides agree on whether it has begun,
and what it leaves behind is read only once it is over. Nothing here decides what to write.
"""

import threading

from discoveryd.daemon.ledger.faults import Broken, Unusable
from discoveryd.daemon.ledger.file import LedgerFile
from discoveryd.daemon.ledger.tables import Writing


class Attempt:
    """One writing, in a thread. The fields are the loop's to read once it is `over`.

    `anew` says that what was there was broken, and that an empty ledger is there now.
    """

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        self.over = False
        self.anew = False
        self.fault: Unusable | None = None
        self.defect: BaseException | None = None
        self._begun = False
        self._given_up = False
        self._beginning = threading.Lock()

    def make(self, file: LedgerFile) -> None:
        """Write. Nothing but a thread's."""
        with self._beginning:
            # The loop may have stopped waiting for another attempt that still hangs in there: two
            # threads in one database are its end, and the process's.
            if self._given_up or not file.take():
                return
            self._begun = True
        try:
            try:
                file.write(self.writing)
            except Broken as why:
                file.replace(why)
                self.anew = True
        except Unusable as fault:
            self.fault = fault
        except BaseException as defect:  # noqa: BLE001 - raised again on the loop
            self.defect = defect
        finally:
            file.give()
        self.over = True

    def give_up(self) -> bool:
        """See that it never begins; return False if it has begun."""
        with self._beginning:
            self._given_up = not self._begun
        return self._given_up
