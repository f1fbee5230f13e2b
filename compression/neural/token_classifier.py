"""Drops single words of prose: LLMLingua-2 checkpoints, and any token classifier with the labels drop and keep.

The method is Pan et al., "LLMLingua-2" (arXiv 2403.12968). What its implementation gets wrong is not repeated here:
`llmlingua` runs the library itself.
"""

# ruff: noqa: RUF001 - marks of other scripts are intended
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compression.neural.batching import (
    DEFAULT_WINDOWS,
    Floats,
    Job,
    Network,
    Windows,
    cut,
    mean_of_tokens,
    run_job,
)
from compression.neural.checkpoints import TextTokenizer, Tokens, find_checkpoint
from compression.neural.networks import Placement, TokenClassifierNetwork
from compression.neural.words import (
    Group,
    Guards,
    Judge,
    Span,
    Word,
    find_guards,
    group_words,
    join_words,
    split_words,
)

CountTokens = Callable[[Sequence[str]], Sequence[int]]
_SENTENCE_ENDS = frozenset({".", "!", "?", "。", "！", "？", "▁.", "▁!", "▁?", "।", "؟"})
_QUERY_WORD = re.compile(r"\w{3,}")
_CORE = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """The tokens of some spans of a source and how probable each is to be kept; offsets into the source."""

    offsets: tuple[Span, ...]
    kept: Floats


_LONGEST_WINDOW = 512


class TokenClassifier:
    """Says which words of prose to keep. Whole words, no token unseen, the source's own characters."""

    def __init__(
        self,
        network: Network,
        tokenizer: TextTokenizer,
        windows: Windows,
        count: CountTokens | None,
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self._windows = windows
        self._count = count
        self._room = (windows.size or _LONGEST_WINDOW) - tokenizer.single.length

    @classmethod
    def load(
        cls,
        checkpoint: str,
        placement: Placement,
        *,
        windows: Windows = DEFAULT_WINDOWS,
        count: CountTokens | None = None,
    ) -> TokenClassifier:
        """A folder or a hub name. `count` counts a receipt's tokens; without it the checkpoint's own are counted."""
        folder = find_checkpoint(checkpoint)
        tokenizer = TextTokenizer.load(folder)
        network = TokenClassifierNetwork.load(folder, placement, tokenizer.pad_id)
        network.window_of(checkpoint, windows.size or _LONGEST_WINDOW)
        return cls(network, tokenizer, windows, count)

    def tokens_job(self, spans: Sequence[Span], found: Sequence[Tokens]) -> Job[ScoredTokens]:
        """Keep probabilities of the tokens `found` in the spans; only these are run through the network."""
        ids: list[int] = []
        offsets: list[Span] = []
        ends: list[int] = []
        for (start, _), tokens in zip(spans, found, strict=True):
            ends += [len(ids) + at + 1 for at, piece in enumerate(tokens.pieces) if piece in _SENTENCE_ENDS]
            ids += tokens.ids
            offsets += [(start + left, start + right) for left, right in tokens.offsets]
            ends.append(len(ids))
        ranges = cut(len(ids), self._room, self._windows.overlap, ends)
        windows = tuple(self.tokenizer.window(ids[first:last]) for first, last in ranges)
        before = len(self.tokenizer.single.before)

        def finish(outputs: Sequence[Floats]) -> ScoredTokens:
            return ScoredTokens(tuple(offsets), mean_of_tokens(ranges, outputs, len(ids), before))

        return Job(windows, finish)

    def keep_words_job(
        self, query: str, source: str, spans: Sequence[Span], budgets: Sequence[int]
    ) -> Job[list[Span]]:
        """Slices to keep of each span of prose, at most its budget of tokens; offsets into the source, in order.

        Spans are sorted and disjoint. Numbers, addresses, code, tables and quotations stay where anything of their
        span does, even over the budget; a negation stays or goes with what it negates. A span with room for
        all stays as it is, one with no budget goes.
        """
        if len(budgets) != len(spans):
            raise ValueError(f"budgets: {len(budgets)} for {len(spans)} spans")
        if any(left[1] > right[0] for left, right in pairwise(spans)):
            raise ValueError("spans: not sorted, or they overlap")
        found = self.tokenizer.many_tokens([source[start:end] for start, end in spans])
        sizes = (
            self._count([source[s:e] for s, e in spans]) if self._count else [len(tokens) for tokens in found]
        )
        cuts = [at for at, (size, budget) in enumerate(zip(sizes, budgets, strict=True)) if 0 < budget < size]
        job = self.tokens_job([spans[at] for at in cuts], [found[at] for at in cuts])
        wanted = frozenset(word.casefold() for word in _QUERY_WORD.findall(query))

        def finish(outputs: Sequence[Floats]) -> list[Span]:
            scored = job.finish(outputs)
            starts = [start for start, _ in scored.offsets]
            judge = Judge(scored.offsets, scored.kept)
            kept: list[Span] = []
            for span, size, budget in zip(spans, sizes, budgets, strict=True):
                if 0 < budget < size:
                    kept += self._keep(source, span, split_words(source, span, starts), judge, budget, wanted)
                elif budget > 0:
                    kept.append(span)
            return kept

        return Job(job.windows, finish)

    def keep_words(
        self, query: str, source: str, spans: Sequence[Span], budgets: Sequence[int]
    ) -> list[Span]:
        """`keep_words_job`, run here and now."""
        return run_job(
            self.network, self.keep_words_job(query, source, spans, budgets), self._windows.token_budget
        )

    def _keep(
        self,
        source: str,
        span: Span,
        words: Sequence[Word],
        judge: Judge,
        budget: int,
        wanted: frozenset[str],
    ) -> list[Span]:
        # The mark that ends a sentence stays with what is left of it.
        mark = (
            len(words) - 1
            if len(words) > 1 and not _CORE.search(source, words[-1].start, words[-1].end)
            else None
        )
        groups = group_words(words, _shifted(find_guards(source[slice(*span)]), span[0]))
        judged = judge.judge(words)
        rank = judged.kept.tolist()
        if wanted:
            for at, word in enumerate(words):
                rank[at] += any(
                    part.casefold() in wanted for part in _CORE.findall(source, word.start, word.end)
                )
        spaced = [source[word.start - word.spaced : word.end] for word in words] if self._count else []
        costs = self._count(spaced) if self._count else judged.tokens.tolist()
        chosen = _choose(groups, rank, costs, budget, mark)
        return join_words(source, words, chosen) if any(chosen[:mark]) else []


def _choose(
    groups: Sequence[Group], rank: Sequence[float], costs: Sequence[int], budget: int, mark: int | None
) -> list[bool]:
    """The locked groups and the last mark, then the groups that are likeliest to be kept and still fit."""
    kept = [False] * len(rank)
    forced = [group.locked or (mark is not None and group.first == mark) for group in groups]
    order = sorted(range(len(groups)), key=lambda at: (not forced[at], -_mean(rank, groups[at]), at))
    left = budget
    for at in order:
        group = groups[at]
        cost = sum(costs[group.first : group.last])
        if forced[at] or cost <= left:
            kept[group.first : group.last] = [True] * (group.last - group.first)
            left -= cost
    return kept


def _mean(rank: Sequence[float], group: Group) -> float:
    return sum(rank[group.first : group.last]) / (group.last - group.first)


def _shifted(guards: Guards, by: int) -> Guards:
    return Guards(
        tuple((start + by, end + by) for start, end in guards.locked),
        tuple((start + by, end + by) for start, end in guards.bound),
    )
