"""``dledger completion``: the script with which a shell completes this command line."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from broker.cli.terminal.options import json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import COMPLETION, Command

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
  dledger completion fish > ~/.config/fish/completions/dledger.fish
  eval "$(dledger completion bash)"                                         in ~/.bashrc
  eval "$(dledger completion zsh)"                                          in ~/.zshrc
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
@click.pass_context
def command(context: click.Context, shell: str, output: Output) -> None:
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click has all three
    made = script(context.find_root().command, {}, "dledger", COMPLETION)
    text = ShellComplete.source(made)  # for bash it runs bash, to ask for its version
    if not output.document({"shell": shell, "script": text}):
        print(text)
