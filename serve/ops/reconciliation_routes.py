"""Whether everything adds up: what `pith reconcile` does."""

from typing import Annotated

from fastapi import APIRouter, Depends

from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers
from serve.ops.reconciling import Asked, Reconciling
from serve.ops.shapes.bodies import NewReconciliation
from serve.ops.shapes.fields import Record
from serve.ops.shapes.proofs import ReconciliationJob


def reconciliation_routes(gate: Gate, reconciling: Reconciling) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/reconciliations", tags=["books"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(ReconciliationJob, 409, status=202))
    async def begin_reconciliation(admin: Caller, body: NewReconciliation | None = None) -> Record:
        """Prove that events, balances, holds and prices agree. One runs at a time: asked for again while it runs, the
        answer names it."""
        wanted = body or NewReconciliation()
        return reconciling.begin(admin, Asked(full=wanted.full, rebuild=wanted.rebuild))

    @routes.get("/{job_id}", **answers(ReconciliationJob, 404))
    async def read_reconciliation(job_id: str, admin: Caller) -> Record:
        """How it does: `running`, `done` with what was found, or `failed`."""
        return reconciling.found(job_id)

    return routes
