// Checks a proof file with the browser's own cryptography: the checks of billing/transparency/verify.py, by the same names.
import { COSIGNATURE, ED25519, Wrong, bytes, checkPromise, checkpointOf, isBeginning, keyOf, need, opened, rootOf, same, sha256 } from "./signed.js";

const FORMAT = "pith-proof/1";
const POSTED = ["month", "pricing_version", "written_off_nano_usd"];
const COUNTS = ["prompt_tokens", "completion_tokens", "cached_tokens", "written_off_nano_usd"];
const MONEY = ["subtotal_nano_usd", "cost_nano_usd", "minimum_applied", "saved_nano_usd", "compression_nano_usd"];
const [DAY_MS, HOUR_MS] = [86_400_000, 3_600_000];

function rounded(numerator, denominator) {
  const [whole, twice] = [numerator / denominator, (numerator % denominator) * 2n];
  return whole + (twice > denominator || (twice === denominator && whole % 2n === 1n) ? 1n : 0n);
}

function cost(event, price, prompt, asCached) {
  const own = BigInt(price.input_micro_usd_per_mtok);
  const cached = BigInt(Math.min(asCached, prompt));
  const ppm = BigInt(event.price_ppm);
  const least = BigInt(price.minimum_nano_usd);
  const pico =
    (BigInt(prompt) - cached) * own +
    cached * BigInt(price.cached_input_micro_usd_per_mtok ?? own) +
    BigInt(event.completion_tokens) * BigInt(price.output_micro_usd_per_mtok);
  const subtotal = rounded(pico * ppm, 10n ** 9n);
  const isMinimum = event.outcome !== "failed" && pico < least * 1000n;
  return [subtotal, isMinimum ? rounded(least * ppm, 10n ** 6n) : subtotal, isMinimum];
}

function checkPrice(event, price, pairedCost) {
  const due = cost(event, price, event.prompt_tokens, event.cached_tokens);
  const isChat = event.original_tokens !== undefined;
  const saved = isChat ? cost(event, price, event.original_tokens, event.original_cached_tokens ?? 0)[1] - due[1] : 0n;
  const all = [...due, saved, isChat ? pairedCost : 0].map(String);
  const charged = MONEY.map((name) => String(event[name]));
  need(charged.join() === all.join(), "price", `event ${event.event_id} has ${charged.join(", ")}, and its tokens and price ${all.join(", ")}`);
}

// As Python writes it: a text that two programs may read differently is refused, and a number that JavaScript cannot hold.
function canonical(fields) {
  const escaped = (one) => JSON.stringify(one).replace(/[\u007f-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const value = (one) => (typeof one === "string" ? escaped(one) : String(one));
  const names = Object.keys(fields).sort();
  return `{${names.map((name) => `${escaped(name)}:${value(fields[name])}`).join(",")}}`;
}

function parsed(written) {
  const found = JSON.parse(written);
  const isPlain = Object.values(found).every((one) => typeof one !== "number" || Number.isSafeInteger(one));
  need(isPlain && canonical(found) === written, "leaf", `not in its one form: ${written.slice(0, 80)}`);
  return found;
}

async function leafOf(given) {
  const [record, posting] = [parsed(given.record), parsed(given.posting)];
  const isApart = !POSTED.some((name) => name in record) && Object.keys(posting).every((name) => POSTED.includes(name));
  need(isApart, "leaf", "record and posting overlap");
  const row = { ...record, ...posting };
  const digest = await sha256(given.record);
  const entry = await sha256(digest, await sha256(given.posting));
  const isEvent = !("id" in row);
  const month = row.month || row.settled_at.slice(0, 7);
  const id = isEvent ? row.event_id : row.id;
  return { id, row, digest, entry, hash: await sha256([0], entry), index: given.index ?? null, isEvent, month };
}

const endOf = (month) => Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)));
const differing = (row, other) => Object.keys({ ...row, ...other }).filter((name) => !POSTED.includes(name) && row[name] !== other[name]);

export class Proof {
  findings = [];
  notes = [];
  #received = new Set();

  constructor(given) {
    this.given = given;
  }

  // Makes one check; the others are made although it fails.
  async attempt(check) {
    try {
      await check();
      return true;
    } catch (error) {
      this.findings.push({ kind: error.kind ?? "malformed", what: error.message });
      return false;
    }
  }

  async check(key) {
    this.isRead = await this.attempt(() => this.#read(key));
    if (!this.isRead) return this;
    await this.attempt(() => this.#checkTree());
    for (const leaf of this.leaves) await this.attempt(() => this.#checkLeaf(leaf));
    await this.attempt(() => this.#checkSums());
    return this;
  }

  async #read(key) {
    const given = this.given;
    this.key = await keyOf(given.key, ED25519);
    need(given.format === FORMAT, "malformed", `it is not of format ${FORMAT}`);
    const isOwn = (key || given.key).trim() === given.key && this.key.name === given.origin;
    need(isOwn, "key", `it is of the log of another key: ${given.key}`);
    [this.until, this.madeAt] = [endOf(given.month), Date.parse(given.made_at)];
    need(this.until > 0 && this.madeAt > 0, "malformed", "it has no month, or no time");
    this.checkpoint = await checkpointOf(given.checkpoint, this.key, "checkpoint");
    this.prices = new Map(given.prices.map((one) => [JSON.stringify([one.version, one.model_id]), one]));
    this.logged = await Promise.all(given.leaves.map(leafOf));
    const pending = await Promise.all(given.pending.map(leafOf));
    [this.leaves, this.pending] = [[...this.logged, ...pending], new Set(pending.map((leaf) => leaf.id))];
    this.byId = new Map(this.leaves.map((leaf) => [leaf.id, leaf]));
    const isOnce = this.byId.size === this.leaves.length && this.prices.size === given.prices.length;
    need(isOnce, "duplicate", "an event, an adjustment or a price is listed twice");
    for (const [at, leaf] of pending.entries()) await checkPromise(given.pending[at].note, this.key, leaf.digest, "pending");
  }

  async #checkTree() {
    const placed = this.logged.filter((leaf) => leaf.index !== null);
    const places = [-1, ...placed.map((leaf) => leaf.index), this.checkpoint.size];
    const ascend = places.every((one, at) => Number.isSafeInteger(one) && (at === 0 || places[at - 1] < one));
    need(ascend, "order", "the leaves' places in the log do not ascend, or one is taken twice");
    const nodes = this.given.nodes.map(bytes);
    const root = await rootOf(this.checkpoint.size, placed, nodes);
    need(same(root, this.checkpoint.root) && nodes.length === 0, "tree", "the leaves are not in the log that was signed");
  }

  #checkLeaf({ id, row, index, isEvent, month }) {
    need(index !== null || this.pending.has(id), "omitted", `${id} is not in the log as the file has it`);
    need(this.#isOwn(row), "scope", `${id} is of another workspace or project`);
    const pair = this.byId.get(row.paired_with);
    const isPaired = row.paired_with === undefined || pair?.row.paired_with === id;
    need(isPaired, "omitted", `event ${id} names ${row.paired_with}, which is not there`);
    const both = isEvent ? [{ row, month }, pair ?? { row, month }] : [];
    const months = [month, ...both.flatMap((one) => [one.month, one.row.settled_at.slice(0, 7)])];
    need(months.includes(this.given.month), "scope", `${id} is of another month`);
    if (!isEvent) need(typeof row.nano_usd === "number", "leaf", `adjustment ${id} has no amount`);
    if (!isEvent || month !== this.given.month) return;
    const counts = [...COUNTS, "cost_nano_usd", "price_ppm", "pricing_version"];
    const isPossible = counts.every((name) => typeof row[name] === "number" && row[name] >= 0) && row.written_off_nano_usd <= row.cost_nano_usd;
    need(isPossible, "leaf", `event ${id} has a count that none can be`);
    const isAfter = Date.parse(row.settled_at) < Math.min(this.until + DAY_MS, this.madeAt + HOUR_MS);
    need(isAfter, "backdated", `event ${id} is later than its month or the file`);
    const price = this.prices.get(JSON.stringify([row.pricing_version, row.model_id]));
    need(price, "price", `event ${id} names a price that the file lacks`);
    checkPrice(row, price, pair?.row.cost_nano_usd ?? 0);
  }

  #isOwn(row) {
    return row.workspace_id === this.given.workspace && [null, row.project_id].includes(this.given.project);
  }

  #checkSums() {
    const sums = new Map();
    for (const { row } of this.leaves.filter((leaf) => leaf.isEvent && leaf.month === this.given.month)) {
      const name = JSON.stringify([row.project_id, row.model_id]);
      const line = sums.get(name) ?? { project_id: row.project_id, model_id: row.model_id, requests: 0n, charged_nano_usd: 0n };
      line.requests += 1n;
      line.charged_nano_usd += BigInt(row.cost_nano_usd - row.written_off_nano_usd);
      for (const count of COUNTS) line[count] = (line[count] ?? 0n) + BigInt(row[count]);
      sums.set(name, line);
    }
    this.adjusted = this.leaves.filter((leaf) => !leaf.isEvent).reduce((sum, leaf) => sum + BigInt(leaf.row.nano_usd), 0n);
    const stated = this.given.totals.usage.map(canonical).sort();
    const due = [...sums.values()].map(canonical).sort();
    need(stated.join("\n") === due.join("\n"), "sums", `the leaves add up to ${due.join(" ")}`);
    need(BigInt(this.given.totals.adjusted_nano_usd) === this.adjusted, "sums", `the adjustments add up to ${this.adjusted}`);
    this.charged = [...sums.values()].reduce((sum, line) => sum + line.charged_nano_usd, 0n);
  }

  async checkWitness(written) {
    const witness = await keyOf(written, COSIGNATURE);
    await opened(this.given.checkpoint, witness, "witness");
    return witness;
  }

  // A checkpoint, or a proof file, of before: nothing of it was changed or taken away since.
  async checkHistory(old, witness) {
    const earlier = old.startsWith("{") ? await new Proof(JSON.parse(old)).check(this.given.key) : null;
    need(!earlier?.findings.length, "history", `the old file is wrong itself: ${earlier?.findings[0]?.what}`);
    const note = earlier ? earlier.given.checkpoint : old;
    const before = await checkpointOf(note, this.key, "history");
    const isCosigned = witness && note.includes(`\n\u2014 ${witness.name} `);
    const at = isCosigned ? (await opened(note, witness, "witness")).at : earlier?.madeAt ?? 0;
    const path = this.given.consistency.find((one) => one.from === before.size)?.path;
    need(before.size <= this.checkpoint.size, "history", "the old checkpoint has more leaves: is it the newer one?");
    const isThere = path || [0, this.checkpoint.size].includes(before.size);
    need(isThere, "unproven", `the file has no proof from ${before.size} leaves on: ask for one`);
    const isKept = await isBeginning(before, this.checkpoint, (path ?? []).map(bytes));
    need(isKept, "history", "the log was rewritten since, or forked");
    const isSame = earlier && ["workspace", "project", "month"].every((name) => earlier.given[name] === this.given[name]);
    const known = new Map((isSame ? earlier.leaves : []).map((leaf) => [leaf.id, leaf.entry]));
    const gone = [...known].filter(([id, entry]) => !same(entry, this.byId.get(id)?.entry ?? []));
    need(!gone.length, "history", `${gone.length} leaves of the old file are not in this one`);
    const added = this.leaves.filter((leaf) => !known.has(leaf.id) && leaf.month === this.given.month);
    const isLate = (leaf) => leaf.index === null || leaf.index >= before.size;
    need(!isSame || added.every(isLate), "history", "leaves were kept from the old file");
    need(at <= this.until + DAY_MS || !added.some(isLate), "backdated", "leaves came when the month was over");
  }

  // The promises anywhere in a reply, or in replies that are lines, also as they were streamed.
  async checkReceipts(reply) {
    let left;
    try {
      left = [JSON.parse(reply)];
    } catch {
      left = reply.split("\n").filter((line) => line.includes('"note"')).map((line) => JSON.parse(line.slice(line.indexOf("{"))));
    }
    while (left.length) {
      const value = left.pop();
      if (value?.record !== undefined && value?.note !== undefined) await this.attempt(() => this.#checkReceipt(value.record, value.note));
      else if (value && typeof value === "object") left.push(...Object.values(value));
    }
  }

  async #checkReceipt(record, note) {
    const [digest, row] = [await sha256(record), parsed(record)];
    await checkPromise(note, this.key, digest, "forged_receipt");
    const [leaf, settled] = [this.byId.get(row.event_id), Date.parse(row.settled_at)];
    const isDue = settled < Math.min(this.until, this.madeAt) - HOUR_MS && row.settled_at.startsWith(this.given.month);
    this.#received.add(row.event_id);
    if (leaf) {
      need(same(leaf.digest, digest), "receipt", `event ${leaf.id} is not as promised: ${differing(row, leaf.row).join(", ")}`);
    } else if (isDue && this.#isOwn(row)) {
      throw new Wrong("receipt", `event ${row.event_id}, settled ${row.settled_at}, was promised and has no leaf`);
    } else {
      this.notes.push(`receipt of event ${row.event_id}: of another month, project or workspace, or too new`);
    }
  }

  get withoutReceipt() {
    return this.leaves.filter((leaf) => leaf.isEvent && !this.#received.has(leaf.id)).length;
  }
}
