"""``dledger completion``: the script by which a shell completes this command line."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from broker.cli.terminal.program import COMPLETION, Command

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
  eval "$(dledger completion bash)"                                         in ~/.bashrc
  eval "$(dledger completion zsh)"                                          in ~/.zshrc
  dledger completion fish > ~/.config/fish/completions/dledger.fish
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click has all three
    print(script(context.find_root().command, {}, "dledger", COMPLETION).source())
