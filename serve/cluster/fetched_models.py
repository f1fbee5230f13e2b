"""Chat models whose weights pith fetches at the first start, and what is served where they cannot be had."""

from pathlib import Path

from models.embedded.fetching import FETCHED_MODELS, CannotBeHad, ensure_fetched
from serve.cluster.progress import Says, StartError
from serve.config.chat_models import ModelSettings
from serve.config.paths import EMBEDDED
from serve.config.settings import Settings


def is_fetched(model: ModelSettings) -> bool:
    return model.checkpoint.removeprefix(EMBEDDED) in FETCHED_MODELS and model.checkpoint.startswith(EMBEDDED)


def fetched_checkpoint(
    model: ModelSettings, state_dir: Path, progress: Says, *, may_fetch: bool = True
) -> str:
    """The folder that the engine loads. Raises `StartError`."""
    try:
        found = ensure_fetched(state_dir / "checkpoints", progress.begin, may_fetch=may_fetch)
        return str(found.resolve())
    except CannotBeHad as error:
        raise StartError(f"{model.id}: {error}") from error


def without_missing(settings: Settings, progress: Says, *, may_fetch: bool = True) -> Settings:
    """The same without models that cannot be had, and their adapters. The first of those that are left is the default
    then, with the replicas of the one that was. Where none is left, or one that is missing takes turns with others,
    nothing is left out, and the start says why. A reload may not fetch: nothing else could be changed meanwhile."""
    missing: dict[str, str] = {}
    for model in settings.engine_models:
        if is_fetched(model):
            try:
                fetched_checkpoint(model, settings.state_dir, progress, may_fetch=may_fetch)
            except StartError as error:
                missing[model.id] = str(error)
    left = [
        model
        for model in settings.models
        if model.id not in missing and (model.adapter is None or model.adapter.of not in missing)
    ]
    in_turns = {model_id for turns in settings.turns for model_id in turns.models}
    whole = [at for at, model in enumerate(left) if model.adapter is None]
    if not missing or not whole or missing.keys() & in_turns:
        return settings
    if settings.models[0].id in missing:
        # An adapter cannot be kept up by itself, so a model that is whole is first.
        first = left.pop(whole[0])
        kept_up = {} if first.id in in_turns else {"replicas": settings.models[0].replicas}
        left.insert(0, first.model_copy(update=kept_up))
    for reason in missing.values():
        progress.say(f"warning: not served, since its weights are not here: {reason}")
    progress.say(f"the default model is {left[0].id}; the next start tries to fetch again")
    return settings.model_copy(update={"models": left})
