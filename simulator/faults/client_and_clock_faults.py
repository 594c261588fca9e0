"""Single faults of a group of brokers: clients, NameServers, clocks, links, disk errors."""

from __future__ import annotations

from simulator.faults.injector import Fault, FaultInjector, at_a_host

NAME_SERVER = "ns"
CLIENT_PAUSE_SECONDS_MAX = 4.0
CLOCK_JUMPS_MS = (-86_400_000, -5_000, -50, 50, 5_000, 86_400_000)
CLOCK_RATES = (0.97, 0.999, 1.001, 1.03)


# --- clients


def _client_crash(injector: FaultInjector) -> None:
    client = injector.rng.choice(injector.cluster.target_clients)
    injector.do("crash-client", client)
    injector.later(2.0, "start-client", client)


def _client_pause(injector: FaultInjector) -> None:
    client = injector.rng.choice(injector.cluster.target_clients)
    injector.do("pause-client", client)
    injector.later(CLIENT_PAUSE_SECONDS_MAX, "resume-client", client)


def _client_cut_off(injector: FaultInjector) -> None:
    """Cuts a client off from one broker, or from all."""
    client = injector.rng.choice(injector.cluster.target_clients)
    hosts = injector.cluster.hosts
    for host in hosts if injector.rng.random() < 0.3 else [injector.host()]:
        injector.do("cut-client", client, host.name)
    injector.later(5.0, "heal")


def _name_server_crash(injector: FaultInjector) -> None:
    injector.do("crash-client", NAME_SERVER)
    injector.later(3.0, "start-client", NAME_SERVER)


# --- links that come and go


def _flapping(injector: FaultInjector) -> None:
    one, other = injector.two()
    for _ in range(injector.rng.randint(2, 6)):
        injector.later(3.0, "cut", one.name, other.name, injector.rng.choice(("noticed", "silent")))
        injector.later(3.0, "heal")


BROKER_ONLY_KINDS: dict[str, Fault] = {
    "client crash": Fault(_client_crash),
    "client pause": Fault(_client_pause),
    "client cut off": Fault(_client_cut_off),
    "NameServer crash": Fault(_name_server_crash),
    "flapping link": Fault(_flapping),
    "clock jump": at_a_host("set-clock", lambda rng: rng.choice(CLOCK_JUMPS_MS)),
    "clock drift": at_a_host("drift-clock", lambda rng: rng.choice(CLOCK_RATES)),
    "sync error": at_a_host("fail-operation", lambda _: "datasync", lambda rng: rng.randint(1, 10)),
    "read error": at_a_host("fail-operation", lambda _: "pread", lambda rng: rng.randint(1, 20)),
}
