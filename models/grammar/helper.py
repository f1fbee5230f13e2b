"""The process that compiles grammars on trial: it reads the tokenizer, then one grammar a line, and reports each.

    python -m models.grammar.helper

Each is compiled in a process of its own, which is ended when it takes more processor time or memory than it may: the
next finds all ready. The helper ends when nothing is asked of it for a while, and with the process that started it.
"""

import ctypes
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

OK = "ok"
REFUSED = "refused"
# What a trial tells on its way.
READ, COMPILED = "read", "compiled"
MAX_REASON_CHARS = 300
# It took more processor time than it may: to be read, which an engine does between the tokens of others; to be
# compiled; for each token of a reply.
SLOW_TO_READ = "slow to read"
SLOW = "slow"
SLOW_TO_FOLLOW = "slow to follow"
LARGE = "large"
IDLE_S = 300
# Half of what the engine's threads have: nesting that ends a trial must not end the engine.
STACK_BYTES = 4 * 2**20
# A reply is held to it token by token, while all others of the engine wait: so many are tried, until so much is left.
MOST_TOKENS, LEAST_TOKENS, SPARE_S = 64, 8, 0.05
# Below the engine, which is serving others at the same time.
NICENESS = 5
PR_SET_PDEATHSIG = 1

# Reads a grammar, and returns what compiles it.
Compiler = Callable[[dict[str, Any]], Callable[[], Any]]


def main() -> None:
    end_with_the_starter()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    terms = json.loads(sys.stdin.readline())
    read = compiler(terms["tokenizer"])
    answer(OK)
    while _asked():
        line = sys.stdin.readline()
        if not line:
            return
        answer(tried(read, json.loads(line), terms))


def compiler(tokenizer: str) -> Compiler:
    import llguidance
    import xgrammar

    info = xgrammar.TokenizerInfo.deserialize_json(tokenizer)
    grammars = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def begin_schema(schema: str) -> None:
        with suppress(ValueError):
            # vLLM asks this one where a schema has what xgrammar does not know.
            llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_json_schema(schema))
        xgrammar.Grammar.from_json_schema(schema)

    kinds: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "json": (begin_schema, grammars.compile_json_schema),
        "structural_tag": (xgrammar.Grammar.from_structural_tag, grammars.compile_structural_tag),
        "regex": (xgrammar.Grammar.from_regex, grammars.compile_regex),
        "grammar": (xgrammar.Grammar.from_ebnf, grammars.compile_grammar),
    }

    def read(job: dict[str, Any]) -> Callable[[], Any]:
        begin, compile_it = kinds[job["kind"]]
        begin(job["spec"])
        options = {"any_whitespace": job["any_whitespace"]} if job["kind"] == "json" else {}
        return lambda: compile_it(job["spec"], **options)

    return read


def tried(read: Compiler, job: dict[str, Any], terms: dict[str, Any]) -> str:
    """The outcome of a trial in a process of its own, which tells how far it has come."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        try:
            _try(read, job, terms, telling)
        finally:
            os._exit(0)
    os.close(telling)
    with open(told, "rb") as said:
        steps = said.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGPROF:
            return LARGE
        return (SLOW_TO_READ, SLOW, SLOW_TO_FOLLOW)[len(steps)]
    # A step that ended otherwise has run out of memory.
    return steps[-1] if steps and steps[-1] not in (READ, COMPILED) else LARGE


def _try(read: Compiler, job: dict[str, Any], terms: dict[str, Any], telling: int) -> None:
    end_with_the_starter()
    limit_memory(terms["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))

    def tell(step: str) -> None:
        os.write(telling, step.encode() + b"\n")

    try:
        limit_work(terms["read_s"])
        compile_it = read(job)
        tell(READ)
        limit_work(max(0.01, terms["cpu_s"] - used_s()))
        compiled = compile_it()
        tell(COMPILED)
        token_s = followed(compiled, terms["cpu_s"] - SPARE_S)
        tell(OK if token_s <= terms["token_s"] else SLOW_TO_FOLLOW)
    except Exception as error:
        if not isinstance(error, MemoryError) and "bad_alloc" not in str(error):
            # Malformed, or of a kind that this library does not know.
            tell(f"{REFUSED} {' '.join(str(error).split())[:MAX_REASON_CHARS]}")


def followed(compiled: Any, until_s: float) -> float:
    """Seconds that a token takes, on a walk through what the grammar allows; 0 where it is too short to tell."""
    import numpy
    import xgrammar

    size = compiled.tokenizer_info.vocab_size
    matcher, allowed = xgrammar.GrammarMatcher(compiled), xgrammar.allocate_token_bitmask(1, size)
    draw, took_s, tokens = random.Random(0), 0.0, 0
    while tokens < MOST_TOKENS and used_s() < until_s and not matcher.is_terminated():
        began_s = used_s()
        matcher.fill_next_token_bitmask(allowed)
        took_s += used_s() - began_s
        bits = numpy.unpackbits(allowed.numpy().view(numpy.uint8), bitorder="little")[:size]
        if not (found := numpy.flatnonzero(bits)).size:
            if not tokens:
                raise ValueError("the grammar allows no text")
            break
        began_s = used_s()
        matcher.accept_token(int(draw.choice(found)))
        took_s += used_s() - began_s
        tokens += 1
    return took_s / tokens if tokens >= LEAST_TOKENS or took_s > SPARE_S else 0.0


def used_s() -> float:
    """Seconds of a processor that this process has used; a child's begin at zero."""
    return time.process_time()


def limit_work(cpu_s: float) -> None:
    """From here on. Past it the kernel ends this process."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def limit_memory(more_bytes: int) -> None:
    """Past it an allocation fails."""
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more_bytes, resource.RLIM_INFINITY))


def end_with_the_starter() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answer(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _asked() -> bool:
    return bool(select.select([sys.stdin], [], [], IDLE_S)[0])


if __name__ == "__main__":
    main()
