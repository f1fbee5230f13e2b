"""Adapters of a server that runs: added, removed and listed, by a command or over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from billing.errors import BillingError
from serve.config.added_adapters import added_to, folder_within, kept, require_takes, with_entries
from serve.config.chat_models import ModelSettings, PriceSettings
from serve.config.settings import Settings
from serve.config.values import Section
from serve.operator.view import Record, View

# From the settings in force to those that are wanted; the block ends when they are in force, or fails.
Change = Callable[[Settings], AbstractContextManager[Settings]]
# Raises `NotInForce`; `str`s are who asks, and the verb in the audit log.
PutInForce = Callable[[Change, str, str], None]


class UnknownAdapter(LookupError):
    """No adapter has this id."""


class OfTheConfiguration(Exception):
    """The adapter is an entry of the configuration file, which alone takes it out."""


class NotInForce(ValueError):
    """The server could not be changed, and goes on as before."""


class NewAdapter(Section):
    id: str = Field(description="What callers send as `model`.")
    of: str = Field(description="Id of the chat model whose engines serve it.")
    source: str = Field(
        min_length=1,
        max_length=1024,
        description="Its folder, within `adapters` of the server's `state_dir`.",
    )
    name: str | None = Field(None, description="Display name; default: the id.")
    blurb: str | None = Field(None, description="One or two sentences for the catalog.")
    price: PriceSettings | None = Field(None, description="null: the base's.")


class Price(View):
    input_usd_per_mtok: str
    output_usd_per_mtok: str
    minimum_request_usd: str
    cached_input_usd_per_mtok: str | None


class Adapter(View):
    id: str
    name: str
    of: str = Field(description="The model whose engines serve it.")
    source: str = Field(description="Folder, or name on the hub.")
    price: Price
    added: bool = Field(description="false: an entry of the configuration file, which alone takes it out.")


class Adapters(View):
    data: list[Adapter]


@dataclass(frozen=True, slots=True)
class ServedAdapters:
    """`put` puts changed settings in force in all processes while requests run."""

    in_force: Callable[[], Settings]
    put: PutInForce

    def listed(self) -> list[Record]:
        settings = self.in_force()
        added = {entry["id"] for entry in added_to(settings.state_dir)}
        return [_row(model, model.id in added) for model in settings.models if model.adapter is not None]

    def add(self, new: NewAdapter, actor: str) -> Record:
        """Return when every process offers it. Raises `ValueError` for what cannot be served, and `NotInForce`."""

        @contextmanager
        def change(settings: Settings) -> Iterator[Settings]:
            entry = _entry(new, settings)
            wanted = with_entries(settings, [entry])
            require_takes(wanted, new.id)
            with kept(settings.state_dir, [*added_to(settings.state_dir), entry]):
                yield wanted

        self.put(change, actor, "adapter.add")
        return self._found(new.id)

    def remove(self, model_id: str, actor: str) -> Record:
        """Return when no process offers it; its requests end meanwhile. Raises `UnknownAdapter`,
        `OfTheConfiguration` and `NotInForce`."""
        removed = self._found(model_id)
        if not removed["added"]:
            raise OfTheConfiguration(
                f"{model_id} is of the configuration file: take it out there, and pith reload"
            )

        @contextmanager
        def change(settings: Settings) -> Iterator[Settings]:
            entries = [one for one in added_to(settings.state_dir) if one["id"] != model_id]
            models = [model for model in settings.models if model.id != model_id]
            with kept(settings.state_dir, entries):
                yield settings.model_copy(update={"models": models})

        self.put(change, actor, "adapter.remove")
        return removed

    def answer(self, request: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """A request on the control socket: `verb`, and what it is of."""
        try:
            return {"exit": 0, "rows": self._done(request, actor)}
        except ValidationError as error:
            issue = error.errors()[0]
            return {"exit": 2, "error": f"{'.'.join(map(str, issue['loc']))}: {issue['msg']}"}
        except (NotInForce, BillingError) as error:
            return {"exit": 1, "error": str(error)}
        except (UnknownAdapter, OfTheConfiguration, ValueError) as error:
            return {"exit": 2, "error": str(error)}

    def _done(self, request: Mapping[str, Any], actor: str) -> list[Record]:
        if request["verb"] == "add":
            return [self.add(NewAdapter.model_validate(request["of"]), actor)]
        if request["verb"] == "remove":
            return [self.remove(str(request["of"]), actor)]
        return self.listed()

    def _found(self, model_id: str) -> Record:
        for row in self.listed():
            if row["id"] == model_id:
                return row
        raise UnknownAdapter(f"no adapter has the id {model_id!r}")


def _entry(new: NewAdapter, settings: Settings) -> dict[str, Any]:
    base = next((model for model in settings.models if model.id == new.of), None)
    if base is None:
        raise ValueError(f"of: {new.of!r} is no chat model of this server")
    price = new.price or base.price
    return {
        "id": new.id,
        "name": new.name or new.id,
        "blurb": new.blurb or f"An adapter of {base.name}.",
        "adapter": {"of": new.of, "source": str(folder_within(settings.state_dir, new.source))},
        "price": price.model_dump(mode="json", exclude_none=True),
    }


def _row(model: ModelSettings, added: bool) -> Record:
    assert model.adapter is not None
    return {
        "id": model.id,
        "name": model.name,
        "of": model.adapter.of,
        "source": model.adapter.source,
        "price": model.price.model_dump(mode="json"),
        "added": added,
    }
