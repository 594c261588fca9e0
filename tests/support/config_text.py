"""Settings from the text of a file."""

from __future__ import annotations

from broker.config.config_file import NAME_SERVER, NODE, load_text, required_config
from broker.config.name_server_config import NameServerConfig
from broker.config.node_config import NodeConfig


def parse_config(text: str, directory: str) -> NodeConfig:
    """The settings of a node, of a file in ``directory``."""
    return required_config(load_text(NODE, text, directory))


def parse_name_server_config(text: str, directory: str) -> NameServerConfig:
    """As :func:`parse_config`, for a NameServer."""
    return required_config(load_text(NAME_SERVER, text, directory))
