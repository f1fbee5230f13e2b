"""The names of Ray Serve's applications, and the intervals at which Ray checks them."""

HEALTH_CHECK_PERIOD_S = 2.0
HEALTH_CHECK_TIMEOUT_S = 15.0
# Under this key Ray's handles know what is proven of a model's prompts.
BOUND_KEY = "pith_prompt_bound"
INGRESS_APP = "ingress"
# For requests that outran the drain time to be cut off and settled, on a busy machine.
SETTLE_S = 4.0


def model_app(model_id: str) -> str:
    """The application of a model: one each, so that a model that cannot start takes no other with it."""
    return f"model:{model_id}"


def compressor_app(model_id: str) -> str:
    """The application of a compression model."""
    return f"compress:{model_id}"
