"""Builds files and batches from the settings."""

from dataclasses import dataclass
from datetime import timedelta

from billing.accounts.accounts import Accounts
from billing.background.upkeep import Round
from billing.batches.batch import FileBounds, Home
from billing.batches.batch_store import BatchStore
from billing.batches.file_store import DEPLOYMENT, FileFolder, FileStore, kept_id
from billing.store.database import Database
from serve.batches.batches import Batches
from serve.batches.endpoints import Endpoints
from serve.batches.files import Files, FileTerms
from serve.batches.line_run import LineRunner
from serve.batches.runner import IDLE_S, BatchJobs, BatchRunner, Pace
from serve.batches.validation import LineBounds
from serve.config.settings import Settings
from serve.money.admission import Admissions
from serve.tracing.request_record import NO_TRACER, Tracer

BYTES_PER_MB = 2**20


@dataclass(frozen=True, slots=True)
class BatchRoom:
    """Files and batches as their routes have them, and their work in the background."""

    files: Files
    batches: Batches
    jobs: BatchJobs
    runner: BatchRunner

    def retire(self) -> int:
        """Leave all that has not begun to other processes. Returns how many lines still run."""
        self.jobs.retire()
        return self.runner.retire()

    def rounds(self, *, upkeep_s: float) -> list[Round]:
        """To be run beside the requests of the process."""
        return [
            Round("files", self.files.delete_expired, upkeep_s),
            Round("batch_jobs", self.jobs.once, IDLE_S, stuck_s=None),
            # A round goes on while there are lines to run.
            Round("batches", self.runner.once, IDLE_S, stuck_s=None),
        ]


def open_batches(
    settings: Settings,
    database: Database,
    endpoints: Endpoints,
    accounts: Accounts,
    admissions: Admissions,
    *,
    lease_s: float,
    tracer: Tracer = NO_TRACER,
) -> BatchRoom:
    """The files and batches of this server's projects. What a process works on is its own for `lease_s`."""
    asked, files, deployment = settings.batches, open_files(settings, database), deployment_of(settings)

    async def home() -> Home:
        return Home(await files.store_id(), deployment)

    store = BatchStore(database, lease_s=lease_s, home=home)
    most_kept = files.terms.bounds.bytes
    lines = LineRunner(store, files.folder, accounts, endpoints, admissions.clock, most_kept, tracer=tracer)
    pace = Pace(admissions.interactive, asked.concurrency, asked.concurrency_beside)
    bounds = LineBounds(asked.max_lines, settings.server.max_body_bytes)
    return BatchRoom(
        files=files,
        batches=Batches(store, admissions.prices, endpoints, asked),
        jobs=BatchJobs(store, files, endpoints, bounds),
        runner=BatchRunner(store, lines, pace),
    )


def deployment_of(settings: Settings) -> str:
    """The deployment whose batches this server runs: that of its configuration, else one of its own."""
    return settings.batches.deployment or kept_id(settings.state_dir / DEPLOYMENT)


def with_deployment(settings: Settings) -> Settings:
    """The same for the machines of a cluster, each with a `state_dir` of its own: they are one deployment."""
    named = {"deployment": deployment_of(settings)}
    return settings.model_copy(update={"batches": settings.batches.model_copy(update=named)})


def open_files(settings: Settings, database: Database) -> Files:
    """The files of this server's projects."""
    asked = settings.batches
    terms = FileTerms(
        max_bytes=asked.max_file_mb * BYTES_PER_MB,
        bounds=FileBounds(asked.max_files_per_project, asked.max_mb_per_project * BYTES_PER_MB),
        lifetime_s=timedelta(days=asked.file_days).total_seconds(),
    )
    return Files(FileStore(database), FileFolder(settings.state_dir / "files"), terms)
