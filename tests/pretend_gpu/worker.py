"""A worker of vLLM's on CPUs that sleeps as one on a GPU does, in what becomes of its memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from vllm.v1.worker.cpu_worker import CPUWorker


class PretendGpuWorker(CPUWorker):  # type: ignore[misc]
    """Stands in for `CuMemAllocator` (`vllm.v1.worker.gpu_worker.Worker.sleep`), which the CPU build lacks: asleep, the
    weights are elsewhere and what was theirs is no number; the KV cache is empty when it wakes."""

    def sleep(self, level: int = 1) -> None:
        assert level == 1
        self._weights = [tensor.clone() for tensor in self._tensors()]
        for tensor in self._tensors():
            tensor.fill_(float("nan"))

    def wake_up(self, tags: list[str] | None = None) -> None:
        for tensor, kept in zip(self._tensors(), self._weights, strict=True):
            tensor.copy_(kept)
        del self._weights
        for cache in self.model_runner.kv_caches:
            cache.zero_()

    def _tensors(self) -> Iterator[torch.Tensor]:
        model = self.model_runner.model
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                yield tensor.data
