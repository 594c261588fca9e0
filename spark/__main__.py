"""``python -m spark``, and the file that ``spark-submit`` takes: see :mod:`spark.cli`."""

from __future__ import annotations

import os
import sys

if not __package__:
    # Run as a file: this directory's modules must not shadow others.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

EXIT_INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from spark.cli import main

        code = main()
    except (KeyboardInterrupt, RuntimeError) as error:
        # During the import of a module Python may wrap one error in another (`__set_name__`).
        if not isinstance(error if error.__cause__ is None else error.__cause__, KeyboardInterrupt):
            raise
        code = EXIT_INTERRUPTED
    sys.exit(code)
