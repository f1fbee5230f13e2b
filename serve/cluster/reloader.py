"""Changes a running server's configuration and code: new applications beside those that run, and then in their place.

The old ones run until the last of their requests has ended, and all goes on as it was where the new ones do not start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from billing.errors import BillingError
from billing.store.migration import current_revision
from billing.usage import now
from serve.cluster.lineup import Lineup, Run, checkpoints_of, within
from serve.cluster.progress import Both, StartError
from serve.cluster.reload_plan import Asked, Plan, asked_by, listed_prices, plan_of
from serve.cluster.replicas.applications import INGRESS_APP, of_generation, without_generation
from serve.config.capacity.fit import check_fit
from serve.config.capacity.placement import demands_of
from serve.config.chat_models import check_folders
from serve.config.paths import ConfigError
from serve.config.settings import Settings, unpinned_revisions
from serve.config.values import parse_node
from serve.money.ledger_setup import put_in_force
from serve.operator.adapters import Change, NotInForce, ServedAdapters
from serve.processes.control import Tell

IN_FORCE, NOT_DONE, WRONG = 0, 1, 2
CLOSE_S = 5.0
logger = logging.getLogger("pith.reload")


CHECK_S = 180.0
# What the HTTP processes will import; and the newest revision of the ledger that this code knows.
PROGRAM = """
import serve.app, serve.cluster.deployments.ingress
from billing.store.migration import newest_revision
print(newest_revision())
"""


class BrokenCode(Exception):
    """It cannot be imported."""


def newest_revision_on_disk() -> str:
    """In a process of its own, which imports it. Raises `BrokenCode`."""
    # -P: nothing is imported from the folder in which the server was started.
    command = [sys.executable, "-P", "-c", PROGRAM]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False)
    except subprocess.TimeoutExpired:
        raise BrokenCode(f"the code on the disk is not imported within {CHECK_S:g} s") from None
    # Its exit status may have been taken by who reaps orphans.
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BrokenCode(f"the code on the disk cannot be imported: {last}")
    return done.stdout.strip().splitlines()[-1]


class ReloadRefused(Exception):
    """The reload that was asked is not possible while the server runs."""


class Reloader:
    """Reloads a running server. `read` gives the settings of a file, or of the one that the server was started from,
    with what its command line said; it raises `ConfigError`. `known` is the newest revision of the ledger that new
    processes would know; it raises `BrokenCode`."""

    def __init__(
        self,
        run: Run,
        lineup: Lineup,
        read: Callable[[Path | None], Settings],
        known: Callable[[], str] = newest_revision_on_disk,
    ) -> None:
        self._run = run
        # The last is in force; the others end.
        self._lineups = [lineup]
        self._generation = lineup.generation
        self._read = read
        self._known = known
        self._one_at_a_time = threading.Lock()
        # Guards the list of lineups.
        self._changing = threading.Lock()
        self._is_closed = threading.Event()

    def close(self) -> None:
        """Begin nothing more, and give up what is under way, before the server stops: at the latest after `CLOSE_S`."""
        self._is_closed.set()
        self._one_at_a_time.acquire(timeout=CLOSE_S)

    @property
    def lineup(self) -> Lineup:
        """The lineup in force."""
        return self._lineups[-1]

    def say(self, line: str) -> None:
        """Tell the operator of this server."""
        self._run.progress.say(line)

    def answer(self, request: Mapping[str, Any], actor: str, tell: Tell) -> None:
        """A request on the control socket."""
        if "adapter" in request:
            tell(self.adapters.answer(request["adapter"], actor))
            return
        try:
            asked = asked_by(actor, request)
        except ValueError as error:
            tell({"exit": WRONG, "error": str(error)})
            return
        tell(self.outcome(asked, lambda line: tell({"say": line})))

    def outcome(self, asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
        """Reload, and say how it went: `exit`, and `error` or what was planned."""
        try:
            plan, version = self.reload(asked, say)
            return {"exit": IN_FORCE, "pricing_version": version, **plan.fields()}
        except (ConfigError, ReloadRefused) as error:
            code, why = WRONG, str(error)
        except (StartError, BillingError, BrokenCode) as error:
            code, why = NOT_DONE, str(error)
        except Exception as error:
            logger.exception("a reload failed")
            code, why = NOT_DONE, f"it failed ({type(error).__name__}); see the server's log"
        why = f"not reloaded, the configuration before stays in force: {why}"
        self.say(why)
        return {"exit": code, "error": why}

    def reload(self, asked: Asked, say: Callable[[str], None]) -> tuple[Plan, int | None]:
        """Return when the new configuration is in force in every process, with the version of its prices; None where
        nothing was done. Raises `ConfigError`, `ReloadRefused`, and what a start raises."""
        with self._alone():
            return self._put(self._read(asked.config), asked, say)

    @property
    def adapters(self) -> ServedAdapters:
        return ServedAdapters(lambda: self.lineup.settings, self._put_in_force)

    def _put_in_force(self, change: Change, actor: str, action: str) -> None:
        """As a reload does. Raises `NotInForce`, what `change` raises, and `BillingError`."""
        try:
            with self._alone(), change(self.lineup.settings) as settings:
                self._put(settings, Asked(actor, action=action), lambda line: None)
        except (ReloadRefused, StartError, BrokenCode) as error:
            raise NotInForce(f"the server goes on as before: {error}") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Raises `ReloadRefused`."""
        if self._is_closed.is_set():
            raise ReloadRefused("the server is stopping")
        if not self._one_at_a_time.acquire(blocking=False):
            raise ReloadRefused("another reload is under way")
        try:
            yield
        finally:
            self._one_at_a_time.release()

    def _put(self, settings: Settings, asked: Asked, say: Callable[[str], None]) -> tuple[Plan, int | None]:
        away = self._run.away(self.lineup)
        plan = plan_of(self.lineup.settings, settings, code=asked.code, away=away)
        tell = Both(self._run.progress, say)
        for line in (*plan.lines(), *(f"warning: {line}" for line in unpinned_revisions(settings))):
            tell.say(line)
        self._require(plan, settings, away)
        if plan.is_empty:
            tell.say("nothing changes")
        if plan.is_empty or asked.dry_run:
            return plan, None
        return plan, self._carry_out(plan, settings, asked, self._run.telling(tell))

    def _require(self, plan: Plan, settings: Settings, away: Collection[str]) -> None:
        """Raises `ReloadRefused`, `ConfigError`, `BrokenCode` or `StartError`."""
        if plan.refused:
            keys = ", ".join(plan.refused)
            raise ReloadRefused(f"needs a restart of the server: {keys}")
        before = [model.adapter for model in self.lineup.settings.models]
        check_folders([model for model in settings.models if model.adapter not in before])
        require_fit(settings, but_for=away)
        if short := lacking(self._run.free(), settings, plan.started):
            raise ReloadRefused(f"no room beside what runs: {short}")
        # Whatever it changes, new processes run the code that is on the disk.
        if not plan.is_empty:
            self._run.check_nodes(settings)
            known = self._known()
            found = asyncio.run(current_revision(settings.billing.database_url))
            if known != found:
                raise ReloadRefused(
                    f"the new code has the ledger at revision {known}, and it is at {found}: stop the server and "
                    "start the new version, which migrates it"
                )

    def _carry_out(self, plan: Plan, settings: Settings, asked: Asked, run: Run) -> int:
        actor, go_on = asked.actor, self._until(asked.within_s)
        old, new = self.lineup, self._next(plan, settings)
        checkpoints = checkpoints_of(settings, run.progress)
        details = {
            "code": plan.code,
            **{change.key: [change.before, change.after] for change in plan.changes},
        }
        with ExitStack() as undo:
            undo.callback(run.remove, [new.places[app] for app in plan.started])
            run.deploy_models(new, plan.started, checkpoints)
            self._wait_for(plan, new, run, go_on)
            version = _publish(settings, actor, asked.action, details)
            undo.callback(_publish, old.settings, actor, f"{asked.action}_undone", {})
            undo.callback(run.remove, [new.ingress])
            run.progress.begin("starting HTTP processes")
            run.deploy_ingress(new)
            run.wait([new.ingress], go_on)
            undo.pop_all()
        with self._changing:
            self._lineups.append(new)
        self._see_off(old, run)
        return version

    def _wait_for(self, plan: Plan, new: Lineup, run: Run, go_on: Callable[[str], None]) -> None:
        """Until what is started runs. What could not start before may fail again, where there is anything else to be
        put in force. Raises `StartError`."""
        tried = [new.places[app] for app in plan.tried_again]
        away = run.wait(new.kept_up(plan.started), go_on, may_fail=tried)
        if plan.only_tries_again and away and away.keys() == set(tried):
            raise StartError("; ".join(f"{without_generation(name)}: {why}" for name, why in away.items()))

    def _until(self, within_s: float) -> Callable[[str], None]:
        """What raises `StartError` once the time is over, or the server stops."""
        in_time = within(within_s)

        def go_on(missing: str) -> None:
            if self._is_closed.is_set():
                raise StartError("the server is stopping")
            in_time(missing)

        return go_on

    def _next(self, plan: Plan, settings: Settings) -> Lineup:
        self._generation += 1
        new = {app: of_generation(app, self._generation) for app in plan.started}
        kept = {app: name for app, name in self.lineup.places.items() if app not in plan.removed}
        return Lineup(settings, kept | new, self._generation)

    def _see_off(self, old: Lineup, run: Run) -> None:
        """Return when no request comes to the old HTTP processes any more; they end when the last one has."""
        run.progress.begin("the HTTP processes before hand over")
        leaving = run.retiring(old)
        running = leaving.wait_for_connections()

        def end() -> None:
            leaving.wait_for_requests()
            self._end(old)

        threading.Thread(target=end, name=f"end of {old.ingress}", daemon=True).start()
        ending = f"; {running} requests before it still run" if running else ""
        run.progress.say(f"in force everywhere{ending}")

    def _end(self, old: Lineup) -> None:
        """Remove its HTTP processes, and the applications that no other lineup has."""
        with self._changing:
            self._lineups.remove(old)
            used = {name for lineup in self._lineups for name in lineup.places.values()}
        self._run.remove([old.ingress, *(name for name in old.places.values() if name not in used)])


def require_fit(settings: Settings, *, but_for: Collection[str] = ()) -> None:
    """As `pith config check` does with the machines that the file names; `but_for` applications whose checkpoints may
    not be there. Raises `ConfigError`."""
    if not settings.nodes:
        return
    for verdict in check_fit(settings, [parse_node(node) for node in settings.nodes]):
        if not verdict.fits and not verdict.waits and verdict.application not in but_for:
            raise ConfigError(f"{verdict.application} does not fit the nodes of the file: {verdict.trouble}")


def lacking(free: Mapping[str, float], settings: Settings, started: Collection[str]) -> str:
    """Resources that Ray lacks to start these and the HTTP processes beside what runs; "" where it has enough."""
    asked: defaultdict[str, float] = defaultdict(float)
    for demand in demands_of(settings):
        if demand.name in started or demand.name == INGRESS_APP:
            for bundle in demand.bundles:
                asked["CPU"] += demand.kept * bundle.cpus
                asked["GPU"] += demand.kept * bundle.gpus
    short = [kind for kind, number in asked.items() if number > free.get(kind, 0)]
    return ", ".join(f"{asked[kind]:g} {kind} asked for, {free.get(kind, 0):g} free" for kind in short)


def _publish(settings: Settings, actor: str, action: str, details: Mapping[str, Any]) -> int:
    prices = listed_prices(settings)
    return asyncio.run(put_in_force(settings, prices, actor=actor, action=action, details=details, now=now()))


def reload_on_sighup(reloader: Reloader) -> None:
    """From here on SIGHUP has the configuration read again, unless it says that the terminal is gone: then it stops the
    server, as before."""
    had_terminal = has_terminal()

    def on_sighup(number: int, frame: FrameType | None) -> None:
        if had_terminal and not has_terminal():
            signal.raise_signal(signal.SIGTERM)
            return
        # Not here: the main thread is to notice the next signal.
        threading.Thread(target=_reload, args=[reloader], name="reload", daemon=True).start()

    signal.signal(signal.SIGHUP, on_sighup)


def has_terminal() -> bool:
    """True where this process can be hung up."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _reload(reloader: Reloader) -> None:
    reloader.outcome(Asked("signal:SIGHUP"), lambda line: None)
