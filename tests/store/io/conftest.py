"""The tests of file calls really sync, and write while nobody waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store.io.async_io import AsyncWrites
from store.io.io_uring import IoUring
from store.io.kernel_aio import KernelAio
from tests.store.io.hand_kernel import Clock, HandKernel


@pytest.fixture(scope="module", autouse=True)
def no_power_loss() -> None:
    """Overrides the fixture of all tests: syncs are real here."""


@pytest.fixture(params=[IoUring, KernelAio], ids=["io_uring", "aio"])
def writes(request: pytest.FixtureRequest) -> Iterator[AsyncWrites]:
    kernel = request.param.open()
    if kernel is None:
        pytest.skip("the system has no writes of this kind")
    found = AsyncWrites(kernel, Clock().time)
    yield found
    found.close()


@pytest.fixture
def kernel() -> Iterator[HandKernel]:
    made = HandKernel()
    yield made
    made.close()
