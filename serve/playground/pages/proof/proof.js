// Proof: a month's proof file, checked here, by this browser, with what its owner has kept. Nothing is sent anywhere.
import { open } from "../api/request.js";
import { byId, make, say } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { askForKey, currentKey } from "../parts/key.js";
import { Proof } from "./check.js";
import { canCheck } from "./signed.js";

const MOST_SHOWN = 20;
const NO_CRYPTOGRAPHY =
  "This browser cannot check signatures here: it has no Ed25519, or the page was not opened over https or on this machine. Run verify.py instead; docs/proof.md says how.";

// What is to be done when the view opens.
export function startProof() {
  byId("proof-month").value = new Date().toISOString().slice(0, 7);
  byId("proof-form").addEventListener("submit", (event) => (event.preventDefault(), checkChosen()));
  byId("proof-get").addEventListener("click", () => run(checkFetched));
  return async () => {
    if (!(await canCheck())) say(byId("proof-fault"), NO_CRYPTOGRAPHY);
  };
}

const chosen = (id) => [...byId(id).files];
const written = (id) => byId(id).value.trim();

function checkChosen() {
  run(async () => {
    const [file] = chosen("proof-file");
    if (!file) throw new Error("Choose a proof file, or get the month's with your key.");
    await check(await file.text());
  });
}

// With a checkpoint of before, the proof that it is a beginning of today's is asked for too.
async function checkFetched() {
  if (!currentKey()) return askForKey();
  const asked = new URLSearchParams({ month: written("proof-month") });
  const [old] = chosen("proof-old");
  const size = old && sizeOf(await old.text());
  if (size) asked.set("from_size", size);
  const reply = await open(`v1/usage/proof?${asked}`, { key: currentKey() });
  await check(await reply.text());
}

function sizeOf(old) {
  const note = old.startsWith("{") ? JSON.parse(old).checkpoint : old;
  return note.split("\n")[1];
}

async function run(work) {
  say(byId("proof-fault"), "");
  byId("proof").replaceChildren();
  byId("proof").setAttribute("aria-busy", "true");
  try {
    if (!(await canCheck())) throw new Error(NO_CRYPTOGRAPHY);
    await work();
  } catch (error) {
    say(byId("proof-fault"), error.message);
  } finally {
    byId("proof").setAttribute("aria-busy", "false");
  }
}

async function check(text) {
  const proof = await new Proof(JSON.parse(text)).check(written("proof-key"));
  const [old] = chosen("proof-old");
  const receipts = chosen("proof-receipts");
  if (proof.isRead) {
    let witness = null;
    if (written("proof-witness")) await proof.attempt(async () => (witness = await proof.checkWitness(written("proof-witness"))));
    if (old) await proof.attempt(async () => proof.checkHistory(await old.text(), witness));
    for (const reply of receipts) await proof.attempt(async () => proof.checkReceipts(await reply.text()));
    if (receipts.length && proof.withoutReceipt) proof.notes.push(`${count(proof.withoutReceipt)} of the file's events have no receipt here`);
  }
  show(proof);
}

const usd = (nano) => `$${(Number(nano) / 1e9).toFixed(9)}`;

function show(proof) {
  const isProven = proof.findings.length === 0;
  const list = (items) => make("ul", {}, ...items.slice(0, MOST_SHOWN).map((item) => make("li", {}, item)));
  const title = isProven ? "Proven" : `Not proven: ${count(proof.findings.length)} findings`;
  byId("proof").append(make("h2", { id: "proof-result", class: isProven ? "" : "fault" }, title));
  if (isProven) byId("proof").append(list(facts(proof)));
  else byId("proof").append(list(proof.findings.map(({ kind, what }) => make("span", {}, make("strong", {}, kind), `: ${what}`))));
  if (proof.notes.length) byId("proof").append(list(proof.notes));
}

function facts({ given, logged, pending, charged, adjusted, checkpoint }) {
  return [
    `${count(logged.length)} leaves of ${given.workspace} in ${given.month}, and ${count(pending.size)} that wait for the log`,
    `Used ${usd(charged)}, adjusted ${usd(adjusted)}: compare these with the bill`,
    `The log has ${count(checkpoint.size)} leaves, and this key: ${given.key}. Compare it with the one that you know`,
  ];
}
