"""A driver that stands in for CANN's: everything up to the launch of a compiled kernel is real, the launch is recorded."""

from __future__ import annotations

from typing import Any

LAUNCHES: list[tuple[str, tuple[int, int, int], tuple[Any, ...]]] = []  # (kernel, grid, arguments)


class Launcher:
    """In place of the extension that triton-ascend builds against CANN."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.name, self.wanted = metadata.kernel_name, len(src.signature)

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, metadata: Any, enter: Any, leave: Any, *given: Any
    ) -> None:
        assert len(given) == self.wanted, (self.name, len(given), self.wanted)
        LAUNCHES.append((self.name, (x, y, z), given))


class Utils:
    """What the driver knows of the chip."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 1, "num_aicore": self.cores // 2, "num_vectorcore": self.cores}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, int, int, int]:
        return None, 1, 0, 0


def install(arch: str = "Ascend910B3", cores: int = 40) -> None:
    """Make it Triton's active driver."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class Driver(DriverBase):
        def __init__(self) -> None:
            self.utils, self.launcher_cls = Utils(cores), Launcher

        @classmethod
        def is_active(cls) -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("npu", arch, 0)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            pass

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_device_interface(self) -> Any:
            raise NotImplementedError

        def get_benchmarker(self) -> Any:
            raise NotImplementedError

    triton.runtime.driver.set_active(Driver())
