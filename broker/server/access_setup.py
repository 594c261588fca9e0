"""The access control of one broker, from its settings and the files of its cluster."""

from __future__ import annotations

from broker.config.client_security import client_security
from broker.config.node_config import NodeConfig
from broker.config.security_config import ENFORCING, OFF
from broker.group_commit.batcher import Batcher
from broker.maintenance.account_changes import AccountChanges
from broker.security.access_control import AccessControl
from broker.security.credentials import ClientSecurity
from broker.server.environment import Environment
from broker.state.state_machine import BrokerStateMachine
from dledger.node.member_features import MemberFeatures


def make_access_control(
    config: NodeConfig, environment: Environment, machine: BrokerStateMachine
) -> AccessControl | None:
    """The access control; None if it is off."""
    secrets = environment.secrets
    if secrets is None or config.security.access_control == OFF:
        return None
    return AccessControl(
        enforcing=config.security.access_control == ENFORCING,
        secrets=secrets,
        table=lambda: machine.state.access,
        now_ms=environment.wall_clock,
        random_bytes=environment.rng.randbytes,
    )


def server_security(config: NodeConfig, environment: Environment) -> ClientSecurity:
    """The credentials with which this server shows others that it belongs to the cluster."""
    secrets = environment.secrets
    return client_security(config.security, secrets.credentials() if secrets else None)


def make_account_changes(
    access: AccessControl | None,
    environment: Environment,
    machine: BrokerStateMachine,
    batcher: Batcher,
    features: MemberFeatures,
) -> AccountChanges | None:
    """The changes of accounts; None if access control is off."""
    if access is None:
        return None
    return AccountChanges(
        access=access,
        state=lambda: machine.state,
        batcher=batcher,
        features=features,
        loop=environment.loop,
        wall_clock=environment.wall_clock,
        first_admin=environment.secrets.admin if environment.secrets else None,
    )
