"""Ray Serve on a cluster that others run: whether it is there, and whether pith started it.

Who started it is noted beside Ray's own state (`ray.experimental.internal_kv`), as the id of Serve's controller
(`SERVE_CONTROLLER_NAME`, `ActorHandle._actor_id`): a Serve that was started again since by others is theirs.
"""

from __future__ import annotations

NOTED_AT = b"pith:started_serve"


def controller_id() -> str | None:
    """Of the Serve that runs on the cluster; None where none does."""
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    try:
        return str(ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)._actor_id.hex())
    except ValueError:
        return None


def note_started() -> None:
    """The Serve that runs was started by pith."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(NOTED_AT, (controller_id() or "").encode(), overwrite=True)


def is_started_by_pith() -> bool:
    from ray.experimental.internal_kv import _internal_kv_get

    noted, running = _internal_kv_get(NOTED_AT), controller_id()
    return running is not None and noted == running.encode()


def begin_deletion(application: str) -> None:
    """`serve.delete` without waiting (`_blocking`), so that several end together."""
    from ray import serve

    serve.delete(application, _blocking=False)
