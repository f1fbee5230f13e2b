"""A vLLM engine in this process, started as vLLM's own server starts it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from models.grammar.trials import TrialTerms
from serve.fairness.replica_turns import FairTrials

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

ARGUMENTS = (
    "--dtype float32 --enforce-eager --max-num-seqs 4 --enable-auto-tool-choice --tool-call-parser hermes "
    '--structured-outputs-config {"backend":"xgrammar","disable_any_whitespace":true}'
)


@asynccontextmanager
async def started(
    checkpoint: Path, temporary: Path, *arguments: str, context: int = 2048, model_id: str = "m"
) -> AsyncIterator[VLLMEngine]:
    """The engine of a checkpoint. What it leaves behind is in `temporary`."""
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from models.vllm.engine import VLLMEngine

    words = ["--model", str(checkpoint), "--served-model-name", model_id, "--max-model-len", str(context)]
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args([*words, *ARGUMENTS.split(), *arguments])
    async with AsyncExitStack() as stack:
        # They are left to the garbage collector, which would warn of them in another test.
        sockets: list[Any] = []
        stack.callback(lambda: [context.destroy(linger=0) for context in sockets])
        with _surroundings(temporary):
            client = await stack.enter_async_context(build_async_engine_client(parsed))
            state: Any = type("State", (), {})()
            await init_app_state(client, state, parsed, await client.get_supported_tasks())
        sockets.append(client.engine_core.resources.ctx)
        yield VLLMEngine(
            model_id,
            state.openai_serving_chat,
            client,
            coalesce_s=0,
            trial_turns=FairTrials(),
            trial_terms=TrialTerms(),
        )


@contextmanager
def _surroundings(temporary: Path) -> Iterator[None]:
    """For the start alone: other tests run while the engine does."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        environment.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        # Its files stay behind; in the system's folder they would look like those of a server that left some. A process
        # that is forked has this one's idea of the folder, and any other reads the variable.
        environment.setenv("TMPDIR", str(temporary))
        environment.setattr(tempfile, "tempdir", str(temporary))
        yield
