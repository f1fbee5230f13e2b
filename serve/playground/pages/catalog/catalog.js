// Catalog: every model of the server in one table that sorts by any column.
import { byId, make, say } from "../parts/dom.js";
import { count, dollars, price } from "../parts/format.js";
import { sortableTable } from "../parts/table.js";

const KINDS = { chat: "Chat", compression: "Compression", embedding: "Embedding", rerank: "Rerank" };
const MEDIA = { image_url: "images", input_audio: "audio", video_url: "video" };

const COLUMNS = [
  { name: "Model", value: (model) => model.name, shown: named },
  { name: "Kind", plain: true, value: (model) => KINDS[model.kind], shown: (model) => KINDS[model.kind] ?? model.kind },
  { name: "Context", number: true, value: contextOf, shown: shownContext },
  { name: "Input", number: true, value: (model) => model.input_price_per_mtok, shown: (model) => price(model.input_price_per_mtok) },
  { name: "Output", number: true, value: outputOf, shown: (model) => (model.kind === "chat" ? price(model.output_price_per_mtok) : "–") },
  {
    name: "Minimum",
    number: true,
    value: (model) => model.minimum_request_charge_usd,
    shown: (model) => dollars(model.minimum_request_charge_usd),
  },
  { name: "Can", value: (model) => abilities(model).join(" "), shown: (model) => tags(abilities(model)) },
];

export function startCatalog(about) {
  const models = [...about.chat, ...about.compression, ...about.retrieval];
  const prices = `Prices are US dollars per million tokens, by price list ${about.pricing_version}.`;
  say(byId("catalog-note"), `${models.length} models. ${prices}`);
  byId("catalog").append(sortableTable("Models, prices and abilities", COLUMNS, models));
}

function named(model) {
  return make(
    "div",
    {},
    make("span", {}, model.name),
    model.is_default ? make("span", { class: "note" }, " · default") : null,
    make("div", { class: "note" }, model.id),
    make("div", { class: "note blurb" }, model.blurb),
  );
}

function contextOf(model) {
  return model.context_length ?? model.max_input_bytes;
}

function shownContext(model) {
  return model.context_length ? count(model.context_length) : `${count(Math.round(model.max_input_bytes / 1024))} KB`;
}

function outputOf(model) {
  return model.kind === "chat" ? model.output_price_per_mtok : -1;
}

function abilities(model) {
  if (model.kind === "compression") return [model.offers_keep ? "units" : "words", ...(model.offers_keep ? ["promise"] : [])];
  if (model.kind !== "chat") return [];
  const able = [model.tools && "tools", model.reasoning_effort && "reasoning", ...model.media.map((kind) => MEDIA[kind] ?? kind)];
  return ["stream", ...able.filter(Boolean)];
}

function tags(names) {
  return names.length ? make("span", {}, ...names.map((name) => make("span", { class: "tag" }, name))) : "";
}
