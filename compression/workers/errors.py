"""What can go wrong with worker processes."""


class WorkerCannotStart(RuntimeError):
    """A worker process does not come up; the message says why."""
