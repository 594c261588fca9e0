"""Planted bugs S: somebody does what he may not do, or may not do what he may."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import broker.security.access_control
import broker.security.authorize
import broker.server.broker
from broker.maintenance.account_changes import AccountChanges, Done
from broker.nameserver import server as name_server
from broker.remoting import forwarder
from broker.remoting.access_guard import Classifier, guarded
from broker.remoting.connection import Connection, Handler
from broker.remoting.forwarded_frame import ForwardedFrame, pack_forwarded
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.security.access_control import AccessControl
from broker.security.accounts import Account
from broker.security.authorize import DESCRIBE, Access, Action, Caller
from broker.security.credentials import Credentials
from broker.security.permissions import Permission
from broker.security.signature import CALLER_FIELDS, SIGNATURE, is_signed_by
from broker.state.commands import PutAccess
from simulator.bugs.broker.lost_state import not_in_checkpoints
from simulator.bugs.broker.state_divergence import obeys_otherwise, without
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import ACCOUNTS

SERVED = "is served, though | is stored in | what no admin has asked for"
REFUSED = "is refused, though"
bug = BugsOf(ACCOUNTS, seconds=8.0, usual=("client pause", "stop"))


@bug("S1x", SERVED, 5)
def wrong_signature_taken(patch: Patch) -> None:
    """A signature must be there, and is not compared."""

    @patch.instead(broker.security.access_control, "is_signed_by")
    def careless(_secret_key: bytes, ext: Mapping[str, object], _body: bytes) -> bool:
        return SIGNATURE in ext


@bug("S2x", SERVED, 5)
def body_not_signed(patch: Patch) -> None:
    """A signature that was right once is right with any body."""
    right: set[tuple[bytes, object]] = set()

    @patch.instead(broker.security.access_control, "is_signed_by")
    def remembering(secret_key: bytes, ext: Mapping[str, object], body: bytes) -> bool:
        known = secret_key, ext.get(SIGNATURE)
        if is_signed_by(secret_key, ext, body):
            right.add(known)
        return known in right


@bug("S3x", SERVED, 5)
def unsigned_request_taken(patch: Patch) -> None:
    """A request that is not signed is the one of the account that it names."""

    @patch.around(AccessControl, "signed")
    def trusting(
        signed: Original[Caller],
        control: AccessControl,
        ext: Mapping[str, object],
        body: bytes,
        host: str,
    ) -> Caller:
        if SIGNATURE not in ext and "AccessKey" in ext:
            found = control._find(str(ext["AccessKey"]), host)
            return found if isinstance(found, Caller) else Caller("unsigned", found[1])
        return signed(control, ext, body, host)


@bug("S4x", SERVED, 5)
def permission_not_checked_on_one_door(patch: Patch) -> None:
    """Request 10 needs an account and no permission, unlike 310."""
    _with_rows(patch, {RequestCode.SEND_MESSAGE: lambda _request: DESCRIBE})


@bug("S5x", SERVED, 5)
def admin_requests_for_everybody(patch: Patch) -> None:
    """Whoever has an account makes accounts and topics."""

    def row(_request: Frame) -> Iterable[Access]:
        return DESCRIBE

    codes = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC
    _with_rows(patch, dict.fromkeys(codes, row))


@bug("S6x", SERVED, 40)
def anybody_forwards(patch: Patch) -> None:
    """Whoever has an account may name the client whose request it forwards."""
    _with_rows(patch, {RequestCode.FORWARD: lambda _request: DESCRIBE})


def _with_rows(patch: Patch, rows: Mapping[int, Classifier]) -> None:
    @patch.instead(broker.server.broker, "guarded")
    def with_rows(
        dispatch: Handler,
        access: AccessControl,
        needs: Mapping[int, Classifier],
        *,
        always: Collection[int] = (),
        without: Collection[int] = (),
    ) -> Handler:
        return guarded(dispatch, access, {**needs, **rows}, always=always, without=without)


@bug("S7x", SERVED, 5)
def group_not_checked(patch: Patch) -> None:
    """Who may consume a topic may do it as a member of any group."""
    authorize = broker.security.authorize.authorize

    @patch.instead(broker.security.access_control, "authorize")
    def careless(caller: Caller, access: Access) -> str:
        return "" if access.group and caller.account else authorize(caller, access)


@bug("S8x", SERVED, 5)
def any_permission_is_enough(patch: Patch) -> None:
    """Who may consume a topic may send to it."""
    authorize = broker.security.authorize.authorize

    @patch.instead(broker.security.access_control, "authorize")
    def careless(caller: Caller, access: Access) -> str:
        why = authorize(caller, access)
        if why and access.action is Action.PUBLISH:
            return authorize(caller, access._replace(action=Action.CONSUME))
        return why


@bug("S9x", SERVED, 5)
def default_before_the_named_permission(patch: Patch) -> None:
    """What an account may do with all topics, it may do with one that is denied by name."""

    @patch.instead(Account, "topic_permission")
    def generous(account: Account, name: str) -> Permission:
        return account.topics.get(name, Permission.DENY) | account.default_topic


@bug("S10x", SERVED, 100, "partition", "pause", "delay")
def forwarded_request_not_checked(patch: Patch) -> None:
    """A leader believes that the follower has checked what it forwards."""

    @patch.instead(broker.server.broker, "guarded")
    def believing(
        dispatch: Handler,
        access: AccessControl,
        needs: Mapping[int, Classifier],
        *,
        always: Collection[int] = (),
        without: Collection[int] = (),
    ) -> Handler:
        guard = guarded(dispatch, access, needs, always=always, without=without)

        def check(connection: Connection, request: Frame) -> None:
            (dispatch if isinstance(request, ForwardedFrame) else guard)(connection, request)

        return check


@bug("S11x", REFUSED, 5)
def forwarded_request_loses_its_caller(patch: Patch) -> None:
    """A follower forwards a request without the fields that say who asks."""
    packed = pack_forwarded

    @patch.instead(forwarder, "pack_forwarded")
    def anonymous(request: Frame, client: str) -> Mapping[str, str]:
        ext = {name: value for name, value in request.ext.items() if name not in CALLER_FIELDS}
        return packed(Frame(request.code, request.opaque, ext=ext, body=request.body), client)


@bug("S12x", f"{SERVED} | {REFUSED}", 5)
def replaced_key_goes_on(patch: Patch) -> None:
    """A node goes on with the account as it knew it first."""

    @patch.around(AccessControl, "_find")
    def forgetful(
        find: Original[Caller | tuple[bytes, Account]],
        control: AccessControl,
        access_key: str,
        host: str,
    ) -> Caller | tuple[bytes, Account]:
        known = control._known.get(access_key)
        if known is not None:
            return known.secret_key, known.account
        return find(control, access_key, host)


@bug("S13x", "is changed, and the log lacks it", 5)
def change_told_before_it_is_committed(patch: Patch) -> None:
    """An admin is told that an account is changed when the change is proposed."""

    @patch.around(AccountChanges, "_propose")
    def hasty(
        propose: Original[None], changes: AccountChanges, make: Callable[[], PutAccess], done: Done
    ) -> None:
        propose(changes, make, lambda _error: None)
        done(None)


@bug("S14x", "that nobody had | gives up a state", 10, "crash")
def accounts_not_in_checkpoints(patch: Patch) -> None:
    """A restart begins without accounts."""
    not_in_checkpoints(patch, "access", dict)


@bug("S15x", SERVED, 5)
def everybody_registers(patch: Patch) -> None:
    """A NameServer takes registrations from whoever reaches it."""
    patch.set(name_server, "READS", name_server.READS | {RequestCode.REGISTER_BROKER})


@bug("S16x", f"{REFUSED} | has another state in settings, and says so in time", 10)
def one_replica_misses_changes(patch: Patch) -> None:
    """One replica does not apply changes of accounts."""
    obeys_otherwise(patch, without(PutAccess))


@bug("S17x", SERVED, 60, "client pause", seconds=20.0)
def removed_admin_comes_back(patch: Patch) -> None:
    """An admin that was removed counts again by the file of the first admin."""

    @patch.instead(AccessControl, "_local_admin")
    def named(control: AccessControl, access_key: str) -> Credentials | None:
        local = control._secrets.admin
        return local if local is not None and local.access_key == access_key else None
