"""The processes of one embedding or rerank model, started from its configuration: an encoder's workers, or vLLM."""

from compression.pipeline.served import JobTerms
from compression.retrieval.encoder_spec import EncoderSpec
from compression.workers.plan import plan_of
from compression.workers.pooled_model import PooledModel, start_encoder
from models.engine import EngineFault
from models.retrieval import Computed, RetrievalJob, RetrievalReplica, RetrievalSpec
from serve.cluster.replicas.pooled_retrieval import computed_in_pool
from serve.cluster.replicas.turns import NoTurn, Turns
from serve.config.retrieval_models import RetrievalModelSettings, spec_of_retrieval

# A larger job waits behind smaller ones.
LARGE_BYTES = 64 * 1024
# Of texts that vLLM has at once, or a single request's: enough for its batches, and what who comes next waits for.
AT_ONCE_BYTES = 512 * 1024


async def start_replica(model: RetrievalModelSettings) -> RetrievalReplica:
    """Load its checkpoint. Raises what the engine's start raises."""
    spec = spec_of_retrieval(model)
    if model.engine.kind == "vllm":
        engine = await start_vllm(spec, forks_cores=model.accelerator.kind == "cpu")
        return InTurn(engine, Turns(room=AT_ONCE_BYTES, most=model.max_waiting))
    return await start_encoder_replica(model, spec)


class InTurn:
    """A `models.retrieval.RetrievalReplica` on one that begins whatever it is given: projects take turns before it."""

    def __init__(self, engine: RetrievalReplica, turns: Turns) -> None:
        self._engine = engine
        self._turns = turns

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        try:
            async with self._turns.turn(payer, job.size):
                return await self._engine.compute(job, payer=payer)
        except NoTurn:
            return EngineFault("unavailable", "as much is waiting for this model as may wait")

    def check(self) -> None:
        self._engine.check()

    async def stop(self) -> None:
        await self._engine.stop()


async def start_vllm(spec: RetrievalSpec, *, forks_cores: bool) -> RetrievalReplica:
    # Here, since only this process is to carry vLLM's weight.
    from models.vllm.core_process import fork_cores
    from models.vllm.pooling import start

    if forks_cores:
        fork_cores()
    return await start(spec)


class EncoderReplica:
    """A `models.retrieval.RetrievalReplica` on an encoder in worker processes."""

    def __init__(self, model: PooledModel) -> None:
        self._model = model

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        return await computed_in_pool(self._model, job, JobTerms(payer=payer))

    def check(self) -> None:
        self._model.check()

    async def stop(self) -> None:
        await self._model.close()


async def start_encoder_replica(model: RetrievalModelSettings, spec: RetrievalSpec) -> EncoderReplica:
    """Raises `WorkerCannotStart`, which says why."""
    engine = model.engine
    encoder = EncoderSpec(
        spec.does,
        spec.checkpoint,
        spec.revision,
        spec.context_length,
        device="cuda" if model.accelerator.kind == "gpu" else "cpu",
        memory_share=model.accelerator.share,
        dtype=engine.dtype,
        threads=engine.threads,
        batch_tokens=engine.batch_tokens,
    )
    plan = plan_of(
        "encoder",
        workers=1,
        large_bytes=LARGE_BYTES,
        max_waiting=model.max_waiting,
        deadline_s=model.deadline_s,
    )
    return EncoderReplica(await start_encoder(encoder, plan))
