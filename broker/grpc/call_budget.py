"""The memory of the gRPC port: what calls hold until their clients have read the answers.

grpcio keeps an answer for as long as the client's window is shut, and cannot be told to give it up.
So what is unread counts, over all connections, and beyond a limit calls are refused as busy.
"""

from __future__ import annotations

from broker.limits import CONSUME, GRPC, GrpcLimits
from dledger.errors import BusyError


class CallBudget:
    """Counts the calls of one port, and their bytes."""

    def __init__(self, limits: GrpcLimits = GRPC) -> None:
        self.limits = limits
        self.calls = 0
        """Calls whose clients have not read the answers."""
        self.receives = 0
        """Of these, calls whose answers may be large."""
        self.bytes = 0
        """Bytes that requests in progress take."""
        self.receive_bytes = 0
        """Of these, bytes of calls whose answers may be large."""
        self.unread = 0
        """Bytes of answers and commands that clients have not read."""

    def begin(self, size: int, *, is_large: bool) -> CallLease:
        """Counts a call whose request takes ``size`` bytes. ``is_large``: its answer may be large,
        and it may wait for messages. So such calls leave room for others.

        Raises :class:`~dledger.errors.BusyError`; then nothing was done for the call.
        """
        if self.calls >= self.limits.calls_max:
            raise BusyError(self.calls, self.limits.calls_max, "calls are handled")
        if is_large and self.receives >= self.limits.receives_max:
            raise BusyError(self.receives, self.limits.receives_max, "receives are handled")
        if is_large and self.unread + CONSUME.pop_bytes_max > self.limits.unread_max:
            raise self._unread_error()
        lease = CallLease(self, is_large=is_large)
        lease.hold(size)
        self.calls += 1
        self.receives += is_large
        return lease

    def keep(self, size: int) -> int:
        """Counts a command to a client, of ``size`` bytes. Returns the bytes that count, which the
        caller takes off :attr:`unread` once the client has read it.

        Raises :class:`~dledger.errors.BusyError`.
        """
        counted = max(size - self.limits.unread_each, 0)
        if counted and self.unread + counted > self.limits.unread_max:
            raise self._unread_error()
        self.unread += counted
        return counted

    def _unread_error(self) -> BusyError:
        return BusyError(self.unread, self.limits.unread_max, "bytes of answers are not read yet")


class CallLease:
    """What one call holds."""

    __slots__ = ("_budget", "_bytes", "_is_large", "_unread")

    def __init__(self, budget: CallBudget, *, is_large: bool) -> None:
        self._budget = budget
        self._is_large = is_large
        self._bytes = 0
        self._unread = 0

    def hold(self, size: int) -> None:
        """The request takes ``size`` bytes by now; 0: it is handled.

        Raises :class:`~dledger.errors.BusyError`.
        """
        budget, more = self._budget, size - self._bytes
        limits, of_receives = budget.limits, more * self._is_large
        if more > 0 and budget.bytes + more > limits.bytes_max:
            told = "bytes would be taken by calls in progress"
            raise BusyError(budget.bytes + more, limits.bytes_max, told)
        if of_receives > 0 and budget.receive_bytes + of_receives > limits.receive_bytes_max:
            told = "bytes would be taken by receives in progress"
            raise BusyError(budget.receive_bytes + of_receives, limits.receive_bytes_max, told)
        budget.bytes += more
        budget.receive_bytes += of_receives
        self._bytes = size

    def answered(self, size: int) -> None:
        """The answer has ``size`` bytes. It is never refused: the work is done. So what is unread
        may exceed the limit by the answers of the calls in progress."""
        self._unread = max(size - self._budget.limits.unread_each, 0)
        self._budget.unread += self._unread

    def end(self, _context: object = None) -> None:
        """The client has read the answer, or is gone. To be called once."""
        self._budget.calls -= 1
        self._budget.receives -= self._is_large
        self._budget.unread -= self._unread
