"""What can go wrong with worker processes."""


class WorkerCannotStart(RuntimeError):
    """A worker process cannot be started; the message says why."""
