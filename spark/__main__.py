"""``python -m spark``, and the file that ``spark-submit`` takes: see :mod:`spark.cli`."""

from __future__ import annotations

import os
import sys

if not __package__:
    # Run as a file: this directory's modules must not shadow others.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
