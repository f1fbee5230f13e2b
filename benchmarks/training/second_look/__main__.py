"""Trains the second look: `python -m benchmarks.training.second_look --data ../shared/eval`.

It reads the weights of the first look, which stay as they are. Where a case's text was among what the embeddings or the
first network learned from, tables and networks that never saw it take their place, or the second look would trust the
first more than it may.
"""

import argparse
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.training import ranker
from benchmarks.training.artefact import write_record, write_second_look
from benchmarks.training.corpus import corpus, half_of
from benchmarks.training.distillation import distil_for_training
from benchmarks.training.examples import Example
from benchmarks.training.options import parser_of, read, versions
from benchmarks.training.ranker import stack
from benchmarks.training.second_look import material
from benchmarks.training.second_look.rounds import FOLDS, add_relations, crossed, train
from benchmarks.training.second_look.samples import Sample, make_all
from benchmarks.training.teacher import Teacher, find_teacher
from benchmarks.training.validation import layout_of
from compression.features.layout import Floats
from compression.features.meaning import TokenEmbeddings
from compression.features.network import Network
from compression.scorers.lexical import LexicalScorer, read_weights
from compression.second_look.rounds import WEIGHTS, SecondLook, read_inputs, relations
from compression.segmentation import segment

# Suites whose rows the first look was trained on; the others are new to it.
SEEN = ("nq", "xquad", "qmsum", "kv", *material.MADE)


def arguments() -> argparse.Namespace:
    parser = parser_of("benchmarks.training.second_look", __doc__, seed=20261122, epochs=7, networks=2)
    parser.add_argument(
        "--tables",
        type=Path,
        default=Path("var/training/tables.npz"),
        help="made where it is missing: the tables of the two halves",
    )
    return read(parser)


def half_tables(
    options: argparse.Namespace, whole: TokenEmbeddings, vocabulary: list[str]
) -> list[TokenEmbeddings]:
    """For each half of the rows, embeddings that were tuned without it."""
    if not options.tables.is_file():
        teacher = Teacher(find_teacher(options.teacher))
        texts = corpus(options.data)
        pieces, sentences = teacher.embed_tokens(), teacher.embed_texts([text.text for text in texts])
        made = distil_for_training(
            vocabulary, pieces, texts, sentences, seed=20261120, steps=options.steps * 3 // 4
        )
        options.tables.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            options.tables,
            **{f"{n}.{k}": getattr(t, k) for n, t in enumerate(made) for k in ("rows", "scales", "weights")},
        )
    with np.load(options.tables, allow_pickle=False) as arrays:
        return [
            TokenEmbeddings.build(
                vocabulary, *(arrays[f"{half}.{name}"] for name in ("rows", "scales", "weights"))
            )
            for half in (0, 1)
        ]


def is_seen(sample: Sample) -> bool:
    return sample.suite.split("_")[0] in SEEN


def fold_of(sample: Sample) -> int:
    """The fold of a sample for crossing: all that is made of one row, or of one page, is in one fold."""
    suite, number, *_ = material.row_name(sample.name).split("-")
    row = f"{suite.split('_')[0]} {int(number) // 10 if suite.startswith('xquad') else number}"
    return zlib.crc32(row.encode()) % FOLDS


def training_samples(options: argparse.Namespace) -> list[Sample]:
    whole, network, names = read_weights()
    vocabulary = list(whole.splitter.pieces)
    nothing = SecondLook((), ())
    halves = half_tables(options, whole, vocabulary)
    found: list[Sample] = []
    cases = list(material.training_cases(options.data))
    for number, table in enumerate([*halves, whole]):
        part = [case for case in cases if _table_of(case.suite, case.name) == number]
        found += make_all(part, LexicalScorer(table, network, names, nothing), options.workers)
    for sample, logits in zip(found, crossed_first(found, options), strict=True):
        sample.logits = logits
    return found


def crossed_first(samples: Sequence[Sample], options: argparse.Namespace) -> list[Floats]:
    """The first look's logits; where its network learned from the row, those of one that learned from the others."""
    logits = [sample.logits for sample in samples]
    for fold in range(FOLDS):
        others = [
            _as_example(each)
            for each in samples
            if each.suite.split("_")[0] in ranker.WEIGHTS and fold_of(each) != fold
        ]
        network = Network.of(stack([ranker.train(others, seed=options.seed + fold, epochs=options.epochs)]))
        for number, each in enumerate(samples):
            if is_seen(each) and fold_of(each) == fold:
                features = each.features[:, : each.first_features].astype(np.float32)
                logits[number] = network.logits(features, layout=layout_of(each))
    return logits


def _as_example(sample: Sample) -> Example:
    """The sample as the first look's training takes it."""
    wanted = np.zeros(len(sample.tokens), bool)
    for group in sample.groups:
        wanted[group] = True
    features = sample.features[:, : sample.first_features]
    return Example(
        sample.suite,
        sample.name,
        False,
        features,
        wanted,
        wanted,
        sample.tokens,
        sample.documents,
        sample.paragraphs,
    )


def _table_of(suite: str, name: str) -> int:
    return (
        half_of(material.row_name(name)) if suite.split("_")[0] in SEEN and not suite.startswith("kv") else 2
    )


def train_rounds(samples: Sequence[Sample], options: argparse.Namespace) -> list[dict[str, Floats]]:
    """The networks of each round. A round learns from logits of networks that did not see the row."""
    logits: Sequence[Floats] = [sample.logits for sample in samples]
    rounds = []
    for number in range(2):
        add_relations(samples, logits)
        seeds = range(options.seed + 100 * number, options.seed + 100 * number + options.networks)
        rounds.append(stack([train(samples, seed=seed, epochs=options.epochs) for seed in seeds]))
        if number == 0:
            logits = crossed(samples, fold_of, options.epochs)
    return rounds


def labels_of(scorer: LexicalScorer) -> list[str]:
    """The names of all features, as a small text gives them."""
    glance = scorer.glance("one", segment("One unit."))
    seen = read_inputs("one", glance.context, (glance.names, glance.features), scorer.embeddings)
    related, _ = relations(seen, glance.logits)
    return [*seen.labels, *related, *related]


def main() -> None:
    options = arguments()
    started = time.perf_counter()
    # The networks are so small that a second thread only waits for the first.
    torch.set_num_threads(1)
    samples = training_samples(options)
    rounds = train_rounds(samples, options)
    weights = options.out / WEIGHTS.name
    write_second_look(weights, rounds, labels_of(LexicalScorer(*read_weights(), SecondLook((), ()))))
    facts = {
        "command": f"python -m benchmarks.training.second_look --seed {options.seed} --epochs {options.epochs} "
        f"--networks {options.networks}",
        "examples": material.counts(samples),
        "seconds": round(time.perf_counter() - started),
        "versions": versions(),
    }  # fmt: skip
    write_record(options.out / "second_look.json", options.data, weights, facts)


if __name__ == "__main__":
    main()
