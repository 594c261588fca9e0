"""``python -m spark package OUT.zip``: the project as an archive for Spark's workers.

PySpark puts ``.zip`` and ``.egg`` files of ``--py-files`` on the path of its workers. Other files,
even a ``.whl``, are only copied, so nothing can be imported from them.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from spark.errors import PackageError

PACKAGES = ("broker", "dledger", "spark", "store")
"""Packages in the archive."""
SUFFIXES = (".zip", ".egg")
_TIME = (1980, 1, 1, 0, 0, 0)
"""A fixed time, so that equal sources give equal archives."""


def write_package(path: str) -> int:
    """Writes the archive, completely or not at all. Returns the number of its files.

    Raises :class:`~spark.errors.PackageError` for a name that Spark would not put on the path, and
    if the archive cannot be written.
    """
    if not path.endswith(SUFFIXES):
        raise PackageError(
            f"{path}: the name must end with {' or '.join(SUFFIXES)}: Spark imports from no other "
            "file of --py-files, a .whl least of all"
        )
    temporary = f"{path}.{os.getpid()}"
    count = 0
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            for package in PACKAGES:
                for name, module in modules(files(package), package):
                    archive.writestr(
                        zipfile.ZipInfo(name, _TIME), module.read_bytes(), zipfile.ZIP_DEFLATED
                    )
                    count += 1
        os.replace(temporary, path)
    except OSError as error:
        raise PackageError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return count


def modules(directory: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """The modules of a package and of its subpackages, each with its name in the archive."""
    for inner in sorted(directory.iterdir(), key=lambda one: one.name):
        if inner.is_dir():
            yield from modules(inner, f"{name}/{inner.name}")
        elif inner.name.endswith(".py"):
            yield f"{name}/{inner.name}", inner
