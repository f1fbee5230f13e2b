"""A vLLM platform that computes on CPUs and has Ray place its workers on GPUs, as the one of NVIDIA's does."""

from vllm.platforms.cpu import CpuPlatform


class PretendGpu(CpuPlatform):
    """As `vllm.platforms.cuda.CudaPlatformBase` in what Ray is told."""

    ray_device_key = "GPU"
    ray_noset_device_env_vars = ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]  # noqa: RUF012
