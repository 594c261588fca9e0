"""Checks of registrations: refused without room, or if another process has the place.

Brokers are not authenticated here. A false registration is recognised by the behaviour of honest
brokers:

- An honest broker that is refused repeats its registration every 30 s. A deposed leader does not:
  without a majority it steps down within seconds (check-quorum). A slow link does not repeat an old
  registration either.
- Elections add at most a few terms a second, and only members are elected.
- A broker usually registers its address from the host of that address.

So a claim is refused if it contradicts a process that still repeats its registration. A refused
claim that is repeated for a minute is accepted (:mod:`broker.nameserver.contested_claims`). A false
registration can hide the true leader for at most 90 s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from broker.limits import NAMESERVER
from broker.nameserver.contested_claims import FRESH_MS, ContestedClaims
from broker.nameserver.registrations import (
    LEADER_ID,
    BrokerName,
    LiveProcess,
    Registration,
    is_native,
)
from broker.remoting.protocol.errors import FieldError

TERMS_AT_ONCE = 1_000
TERMS_A_SECOND = 10
"""How many terms elections may add in a second: a failed election takes 0.1 s or more."""


class RegistrationRefusedError(FieldError):
    """A registration is refused; nothing was changed."""


class StaleTermError(RegistrationRefusedError):
    """A registration as leader with an outdated term."""

    def __init__(self, broker_name: str, term: int, known_term: int) -> None:
        super().__init__(f"{broker_name}: a leader of term {known_term} is known, not {term}")


class EarlierConnectionError(RegistrationRefusedError):
    """A registration over an older connection than the known one of the address."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: is registered over a later connection")


class ContestedError(RegistrationRefusedError):
    """A registration that seems to claim the place of another process."""


class RegistrationChecks:
    """The checks. ``live`` are the registered processes, by address; ``clock`` gives
    milliseconds."""

    def __init__(self, live: Mapping[str, LiveProcess], clock: Callable[[], int]) -> None:
        self._live = live
        self._clock = clock
        self._contested_claims = ContestedClaims(clock, NAMESERVER.connection_processes_max)
        self.channel_closed = self._contested_claims.closed

    def check_address(self, address: str, channel: int, host: str) -> None:
        """Raises :class:`RegistrationRefusedError` if another connection has the address. That may
        be of an earlier process of this broker, or one of the two registrations is false."""
        known = self._live.get(address)
        if known is None or known.channel == channel:
            return
        claim = ("address", address)
        native, fresh = is_native(address, host), self._is_fresh(known)
        if native and not known.is_native:
            return
        if known.is_native and not native and fresh:
            refusal: Exception = ContestedError(f"{address}: a process on that host has it")
        elif channel < known.channel:
            refusal = EarlierConnectionError(address)
        elif fresh and self._contested_claims.accepted(claim) == known.channel:
            refusal = ContestedError(f"{address}: another connection has repeated its claim to it")
        else:
            return
        self._refuse(claim, channel, refusal)

    def check_place(self, registration: Registration, group: BrokerName, channel: int) -> None:
        """Raises :class:`RegistrationRefusedError` if the process may not take its place in a known
        group."""
        name, address = registration.broker_name, registration.address
        leader = self._live.get(group.addresses.get(LEADER_ID, ""))
        if leader is not None and (leader.channel == channel or not self._is_fresh(leader)):
            leader = None  # the leader's registration is old, or this is the leader
        strange = leader is not None and not group.may_be_member(address)
        if registration.broker_id != LEADER_ID:
            holder = group.addresses.get(registration.broker_id, address)
            if strange and holder != address and holder in group.reported_members:
                refusal = ContestedError(f"{address}: is not a member of {name}, {holder} is")
                self._refuse(("id", name, registration.broker_id), channel, refusal)
            if self._contested_claims.accepted(("leader", name)) == channel:
                self._contested_claims.settled(("leader", name))
            return
        claim, term = ("leader", name), registration.term or 0
        passed_ms = 0 if leader is None else self._clock() - leader.last_update
        if strange:
            self._refuse(
                claim,
                channel,
                ContestedError(f"{address}: is not a member of {name}, which has a leader"),
            )
        elif leader is not None and registration.term and term > group.term + terms_in(passed_ms):
            self._refuse(
                claim,
                channel,
                ContestedError(
                    f"{name}: elections cannot lead from term {group.term} to {term} in "
                    f"{passed_ms // 1000} s"
                ),
            )
        elif term < group.term:
            self._refuse(claim, channel, StaleTermError(name, term, group.term))
        elif leader is not None and self._contested_claims.accepted(claim) == leader.channel:
            self._refuse(
                claim,
                channel,
                ContestedError(
                    f"{name}: {leader.registration.address} has repeated its claim to lead"
                ),
            )

    def name_forgotten(self, name: str) -> None:
        """Drops the claims of a name without registered processes."""
        self._contested_claims.settled(("leader", name))

    def _refuse(self, claim: Hashable, channel: int, refusal: Exception) -> None:
        if not self._contested_claims.repeated(claim, channel):
            raise refusal

    def _is_fresh(self, process: LiveProcess) -> bool:
        return self._clock() - process.last_update <= FRESH_MS


def terms_in(passed_ms: int) -> int:
    """The number of terms that elections can add in that time."""
    return TERMS_AT_ONCE + TERMS_A_SECOND * passed_ms // 1000
