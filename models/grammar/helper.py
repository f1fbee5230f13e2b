"""The process that compiles grammars on trial: it reads the tokenizer, then one grammar a line, and reports each.

    python -m models.grammar.helper

It ends when a compile takes more processor time than it may, and its end is the answer; when nothing is asked of it for
a while; and with the process that started it.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

OK = "ok"
REFUSED = "refused"
IDLE_S = 300
# Below the engine, which is serving others at the same time.
NICENESS = 15
PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    terms = json.loads(sys.stdin.readline())
    compile_one = compiler(terms["tokenizer"])
    answer(OK)
    while _asked():
        line = sys.stdin.readline()
        if not line:
            return
        limit_work(cpu_s=terms["cpu_s"], memory_bytes=terms["memory_bytes"])
        answer(tried(compile_one, json.loads(line)))


def compiler(tokenizer: str) -> Callable[[dict[str, Any]], object]:
    import xgrammar

    info = xgrammar.TokenizerInfo.deserialize_json(tokenizer)
    grammars = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile_one(job: dict[str, Any]) -> object:
        if job["kind"] == "json":
            return grammars.compile_json_schema(job["spec"], any_whitespace=job["any_whitespace"])
        return grammars.compile_structural_tag(job["spec"])

    return compile_one


def tried(compile_one: Callable[[dict[str, Any]], object], job: dict[str, Any]) -> str:
    try:
        compile_one(job)
    except Exception as error:
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            os._exit(1)
        # Malformed, or of a kind that this library does not know: the engine says which, in its own words.
        return REFUSED
    return OK


def limit_work(*, cpu_s: int, memory_bytes: int) -> None:
    """From here on. Past the first the kernel ends this process; past the second an allocation fails."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + cpu_s, resource.RLIM_INFINITY)
    )
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory_bytes, resource.RLIM_INFINITY))


def answer(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _asked() -> bool:
    return bool(select.select([sys.stdin], [], [], IDLE_S)[0])


if __name__ == "__main__":
    main()
