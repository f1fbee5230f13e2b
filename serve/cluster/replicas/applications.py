"""The names of Ray Serve's applications, and the intervals at which Ray checks them.

A name says what an application is for. One that takes the place of another (`pith reload`) has the same name with its
generation behind it, since both run for a while.
"""

from collections.abc import Mapping

HEALTH_CHECK_PERIOD_S = 2.0
HEALTH_CHECK_TIMEOUT_S = 15.0
# Under this key Ray's handles know what is proven of a model's prompts.
BOUND_KEY = "pith_prompt_bound"
INGRESS_APP = "ingress"
OPS_APP = "ops"
# For requests that outran the drain time to be cut off and settled, on a busy machine.
SETTLE_S = 4.0
# No id of a model has it.
_GENERATION = "@"
# Where the applications of a server are: what each is for, and the name that it has at Ray Serve.
Places = Mapping[str, str]


def model_app(name: str) -> str:
    """The application of a model: one each, so that a model that cannot start takes no other with it. Of models that
    take turns there is one together, by the `name` of their group."""
    return f"model:{name}"


def bound_key(model_id: str) -> str:
    """The same as `BOUND_KEY`, of one of several models of a replica."""
    return f"{BOUND_KEY}:{model_id}"


def compressor_app(model_id: str) -> str:
    """The application of a compression model."""
    return f"compress:{model_id}"


def retrieval_app(model_id: str) -> str:
    """The application of an embedding or rerank model with processes of its own."""
    return f"retrieval:{model_id}"


def of_generation(app: str, generation: int) -> str:
    """The name at Ray Serve of the one that the server's reload of that number has started; 1: its start."""
    return app if generation == 1 else f"{app}{_GENERATION}{generation}"


def without_generation(name: str) -> str:
    """The application's name without its generation."""
    return name.partition(_GENERATION)[0]


def models_of(name: str) -> list[str]:
    """The models that an application serves, whatever its kind and its generation."""
    kind, _, models = without_generation(name).partition(":")
    return models.split("+") if models and kind in ("model", "compress", "retrieval") else []


def is_of_pith(name: str) -> bool:
    """True for an application of pith on a cluster that others use too, of whatever generation."""
    return bool(models_of(name)) or is_ingress(name)


def is_ingress(name: str) -> bool:
    return without_generation(name) == INGRESS_APP
