"""Trains the lexical scorer: `python -m benchmarks.training --data ../shared/eval --out compression/weights`."""

import argparse
import importlib.metadata
import time

import torch

from benchmarks.training import quizzes, ranker
from benchmarks.training.artefact import write_record, write_weights
from benchmarks.training.corpus import corpus, half_of
from benchmarks.training.distillation import distil, distil_for_training
from benchmarks.training.examples import Example, make_all
from benchmarks.training.options import parser_of, read, versions
from benchmarks.training.teacher import Teacher, find_teacher
from benchmarks.training.validation import validate
from compression.features.matrix import extract, prepare
from compression.features.meaning import TokenEmbeddings
from compression.features.network import Network
from compression.segmentation import segment


def make_tables(
    teacher: Teacher, vocabulary: list[str], options: argparse.Namespace
) -> tuple[TokenEmbeddings, TokenEmbeddings, TokenEmbeddings]:
    """The tables for the training cases of the two halves, and the one that is shipped."""
    texts = corpus(options.data)
    pieces, sentences = teacher.embed_tokens(), teacher.embed_texts([text.text for text in texts])
    one, other = distil_for_training(
        vocabulary, pieces, texts, sentences, seed=options.seed, steps=options.steps * 3 // 4
    )
    whole = distil(
        vocabulary, pieces, [text.text for text in texts], sentences, seed=options.seed, steps=options.steps
    )
    return one, other, whole


def make_examples(
    tables: tuple[TokenEmbeddings, TokenEmbeddings, TokenEmbeddings], options: argparse.Namespace
) -> list[Example]:
    """Training cases with the table of their half, held-out cases with the one that is shipped."""
    cases = list(quizzes.training_cases(options.data))
    parts = [[case for case in cases if half_of(case.name) == half] for half in (0, 1)]
    parts.append(list(quizzes.held_out_cases(options.data)))
    return [
        e for part, table in zip(parts, tables, strict=True) for e in make_all(part, table, options.workers)
    ]


def main() -> None:
    options = read(parser_of("benchmarks.training", __doc__, seed=20261120, epochs=12, networks=4))
    started = time.perf_counter()
    torch.set_num_threads(options.workers)
    teacher = Teacher(find_teacher(options.teacher))
    vocabulary = teacher.vocabulary()
    tables = make_tables(teacher, vocabulary, options)
    # The network is so small that a second thread only waits for the first.
    torch.set_num_threads(1)
    examples = make_examples(tables, options)
    embeddings = tables[-1]
    training = [example for example in examples if not example.is_held_out]
    seeds = range(options.seed, options.seed + options.networks)
    arrays = ranker.stack([ranker.train(training, seed=seed, epochs=options.epochs) for seed in seeds])
    kept = validate(Network.of(arrays), examples)
    text = segment("One unit.")
    names, _ = extract("one", prepare(text, embeddings), embeddings)
    weights = options.out / "lexical.npz"
    write_weights(weights, vocabulary, embeddings, arrays, names)
    facts = {
        "command": f"python -m benchmarks.training --seed {options.seed} --steps {options.steps} "
        f"--epochs {options.epochs} --networks {options.networks}",
        "teacher": {"model": "sentence-transformers/all-MiniLM-L6-v2", "sha256": teacher.weights_sha256},
        "examples": {"training": len(training), "held_out": len(examples) - len(training)},
        "held_out_percent_kept": kept,
        "seconds": round(time.perf_counter() - started),
        "versions": {**versions(), "transformers": importlib.metadata.version("transformers")},
    }  # fmt: skip
    write_record(options.out / "record.json", options.data, weights, facts)
    for suite, by_ratio in kept.items():
        print(f"{suite:12}", *(f"{ratio}: {share:.1f}" for ratio, share in by_ratio.items()))


if __name__ == "__main__":
    main()
