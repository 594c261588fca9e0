"""``python -m broker``: the same as ``dledger``."""

from __future__ import annotations

import sys

from broker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
