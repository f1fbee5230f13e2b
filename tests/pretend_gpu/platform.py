"""A vLLM platform that computes on CPUs and has Ray place its workers on GPUs, as the one of NVIDIA's does."""

from typing import Any

from vllm.platforms.cpu import CpuPlatform


class PretendGpu(CpuPlatform):
    """As `vllm.platforms.cuda.CudaPlatformBase` in what Ray is told, and in that engines may sleep."""

    ray_device_key = "GPU"
    ray_noset_device_env_vars = ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]  # noqa: RUF012

    def is_sleep_mode_available(self) -> bool:
        return True

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        super().check_and_update_config(vllm_config)
        if vllm_config.model_config.enable_sleep_mode:
            vllm_config.parallel_config.worker_cls = "tests.pretend_gpu.worker.PretendGpuWorker"
