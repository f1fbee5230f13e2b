"""Errors of files and batches, named for what happened."""

from billing.errors import BillingError


class UnknownFile(BillingError, LookupError):
    """No file of this project has that id, or its time is over."""

    def __init__(self, file_id: str) -> None:
        super().__init__(f"no such file: {file_id}")


class UnknownBatch(BillingError, LookupError):
    """No batch of this project has that id."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"no such batch: {batch_id}")


class FilesFull(BillingError):
    """With the new file, the project would have more files, or more bytes of them, than it may."""

    def __init__(self, *, most_files: int, most_bytes: int) -> None:
        super().__init__(
            f"the project's files may be {most_files} at most, with {most_bytes} bytes together; delete some first"
        )


class ResultsFull(BillingError):
    """The project's files, and the results of its batches that are not in a file yet, are as large as they may be."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"the project's files and the results of its batches have {most_bytes} bytes together, which is all that "
            "they may have; delete some files first"
        )


class StorageFull(BillingError):
    """There is no room left where files are kept."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is no room for files on this server: {reason}")


class StorageUnavailable(BillingError):
    """The folder in which files are kept cannot be read or written."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this server's files cannot be read or written: {reason}")


class StoredElsewhere(StorageUnavailable):
    """The file is kept in a file store that this server does not reach."""

    def __init__(self, file_id: str, store: str, own: str) -> None:
        has_it = f"file store {store} has {file_id}" if store else f"it is not known yet who has {file_id}"
        BillingError.__init__(self, f"{has_it}, and this server reaches {own} alone")


class FileInUse(BillingError):
    """A batch that has not ended reads the file."""

    def __init__(self, file_id: str, batch_id: str) -> None:
        super().__init__(f"file {file_id} is the input of {batch_id}, which has not ended; cancel that first")


class BatchEnded(BillingError):
    """The batch cannot be cancelled any more."""

    def __init__(self, batch_id: str, status: str) -> None:
        super().__init__(f"batch {batch_id} is {status} and cannot be cancelled")


class TooManyBatches(BillingError):
    """The project has as many batches that have not ended as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the project has {most} batches that have not ended, and may have no more")


class LostClaim(BillingError):
    """Somebody else has taken over what this process was working on: nothing of it was written."""
