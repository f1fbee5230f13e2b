"""Trains the embedded chat models on a folder of public data: `python -m benchmarks.training.chat_models --out DIR`."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.training.chat_models.conversations import FINISHING, ConversationStream
from benchmarks.training.chat_models.prose import Corpus, CorpusMissing, read_corpus
from benchmarks.training.chat_models.recipes import RECIPES, Recipe
from models.embedded.install import ARTEFACTS, MANIFEST, sha256_of

TEMPLATE = "chat_template.jinja"


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a number of minutes between 0 and 1000")
    return value


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.chat_models",
        description="Train the tokenizer and the embedded models. The same seed, the same data, the same "
        "number of threads and the same versions give the same files.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write; models/embedded to replace")
    parser.add_argument("--model", choices=list(RECIPES), help="make this one only; default: all four")
    parser.add_argument(
        "--train-data", type=Path, default=Path("../shared/eval"), help="default: %(default)s"
    )
    parser.add_argument(
        "--minutes", type=positive, help="nominal, per model: it sets the number of steps, not a clock"
    )
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console(stderr=True)
    # Spinning threads make training ten times slower once anything else wants the cores; torch reads
    # these when it is loaded, which is below.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    try:
        corpus = read_corpus(options.train_data)
    except CorpusMissing as missing:
        console.print(f"[red]{missing}[/red]; name the folder with --train-data", soft_wrap=True)
        return 2
    make_tokenizer(corpus, options.out / "tokenizer", keep=options.model is not None, console=console)
    for model_id in [options.model] if options.model else RECIPES:
        make_model(model_id, corpus, options, console)
    write_manifest(options.out)
    console.print(f"Wrote {options.out}.")
    return 0


def make_tokenizer(corpus: Corpus, folder: Path, *, keep: bool, console: Console) -> None:
    """`keep` leaves a tokenizer that is there, since the other models were trained with it."""
    from benchmarks.training.chat_models.tokenizer import train_tokenizer, write_tokenizer

    if keep and (folder / "tokenizer.json").is_file():
        return
    console.print("Training the tokenizer.")
    write_tokenizer(train_tokenizer(corpus), folder)
    if not (folder / TEMPLATE).is_file():
        shutil.copyfile(ARTEFACTS / "tokenizer" / TEMPLATE, folder / TEMPLATE)


def make_model(model_id: str, corpus: Corpus, options: argparse.Namespace, console: Console) -> None:
    import torch

    from benchmarks.training.chat_models.networks import Progress as Stand
    from benchmarks.training.chat_models.networks import (
        finish_model,
        load_tokenizer,
        save_checkpoint,
        train_model,
    )

    recipe = RECIPES[model_id]
    torch.set_num_threads(options.threads)
    minutes = recipe.minutes if options.minutes is None else options.minutes
    steps = max(1, round(minutes * recipe.steps_per_minute))
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task(f"Training {model_id}: compiling", total=steps)

        def report(stand: Stand) -> None:
            text = f"Training {model_id}: {stand.loss:.2f} nats a token"
            bar.update(task, completed=stand.step, total=stand.steps, description=text)
            if not console.is_terminal and stand.step % 100 == 0:
                console.print(f"{text}, step {stand.step} of {stand.steps}")

        tokenizer = load_tokenizer(options.out / "tokenizer")
        school = iter(ConversationStream(corpus, recipe.seed))
        model = train_model(recipe, steps, school, tokenizer, report)
        finishing = iter(ConversationStream(corpus, recipe.seed, FINISHING))
        model = finish_model(model, finishing, tokenizer, report)
    folder = options.out / "checkpoints" / model_id
    folder.mkdir(parents=True, exist_ok=True)
    save_checkpoint(model, folder)
    write_generation_config(recipe, folder)


def write_generation_config(recipe: Recipe, folder: Path) -> None:
    """What engines take as sampling defaults; the penalty keeps greedy replies from going in circles."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    defaults = {
        "eos_token_id": [config["eos_token_id"], config["pad_token_id"]],
        "pad_token_id": config["pad_token_id"],
        "repetition_penalty": recipe.repetition_penalty,
    }
    text = json.dumps(defaults, indent=2) + "\n"
    (folder / "generation_config.json").write_text(text, encoding="utf-8")


def write_manifest(artefacts: Path) -> None:
    """List every artefact as it is now."""
    paths = sorted(
        path for folder in ("checkpoints", "tokenizer") for path in (artefacts / folder).rglob("*.*")
    )
    listed = {path.relative_to(artefacts).as_posix(): sha256_of(path) for path in paths}
    text = json.dumps({"sha256": listed}, indent=2) + "\n"
    (artefacts / MANIFEST).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
