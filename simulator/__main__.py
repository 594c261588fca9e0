"""``python -m simulator``: see :mod:`simulator.cli.main`."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from simulator.cli.main import main

        code = main()
    except (KeyboardInterrupt, RuntimeError) as error:
        # During the import of a module Python may wrap one error in another (`__set_name__`).
        if not isinstance(error if error.__cause__ is None else error.__cause__, KeyboardInterrupt):
            raise
        code = EXIT_INTERRUPTED
    sys.exit(code)
