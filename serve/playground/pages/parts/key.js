// The project key: in memory, or for as long as the tab lives if its owner says so; nowhere else. The server is asked
// whether it knows it, and one that it refuses is not used.
import { ask, NO_KEY } from "../api/request.js";
import { byId, say } from "./dom.js";

const STORED = "pith.key";
// What `pith serve` prints on a terminal. A browser sends no fragment to any server.
const HANDED = /^#key=(.+)$/;
// Where nobody but this machine's own users can have sent the link.
const OWN_MACHINE = ["localhost", "127.0.0.1", "[::1]"];
const STATES = {
  none: "Add a key",
  checking: "Checking the key…",
  valid: "Key in use",
  refused: "Key refused",
  unchecked: "Key not checked",
};
const changed = new EventTarget();
let key = "";
// The check that is under way, if any, and the end of the last one.
let checking = null;
let checked = Promise.resolve();
// Where the focus was when a key was asked for.
let asker = null;

export const currentKey = () => key;
// The key once a check that is under way has ended.
export const checkedKey = async () => (await checked, key);
export const onKey = (listener) => changed.addEventListener("change", listener);

export function startKey() {
  const [button, box] = [byId("key-button"), byId("key-box")];
  const stored = read();
  if (stored) box.querySelector("[value=session]").checked = true;
  button.addEventListener("click", () => toggle(box.hidden));
  box.addEventListener("keydown", (event) => event.key === "Escape" && toggle(false));
  box.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(byId("key").value.trim(), box.querySelector("[name=keep-key]:checked").value === "session");
  });
  byId("key-forget").addEventListener("click", () => forget());
  show("none");
  const handed = handedOver();
  if (stored) begin(stored, true);
  if (handed) offer(handed);
  addEventListener("hashchange", () => {
    const given = handedOver();
    if (given) offer(given);
  });
}

// The key in the address, which is out of it at once.
function handedOver() {
  const [, given = ""] = HANDED.exec(location.hash) ?? [];
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given;
}

// A link may come from anybody, and whoever has the key that it brings could read on: elsewhere, and where it would take
// the place of another key, a person decides.
async function offer(given) {
  if (!key && OWN_MACHINE.includes(location.hostname)) {
    begin(given, false);
    return;
  }
  await checked;
  if (given === key) return;
  byId("key").value = given;
  say(byId("key-link"), "The link that you opened has brought this key. Use it only if you know whose it is.");
  toggle(true);
}

function begin(given, forTab) {
  use(given, forTab);
  checked = check(given, forTab);
}

export function askForKey() {
  asker = document.activeElement;
  toggle(true);
}

// After a request with this key failed: it may have been revoked since.
export function noteRefusal(used, error) {
  if (error.code === "invalid_api_key" && used === key) refuse(error);
}

async function submit(given, forTab) {
  if (!given) forget("Paste a key first.");
  else if ((await (checked = check(given, forTab))) === "valid") toggle(false);
}

// Ask the server, and use the key unless it is refused; null where another was given or forgotten meanwhile.
async function check(given, forTab) {
  const own = (checking = {});
  show("checking");
  const { state, error } = await verdict(given);
  if (checking !== own) return null;
  if (state === "refused") {
    refuse(error);
    return state;
  }
  use(given, forTab);
  show(state, state === "unchecked" ? `The key could not be checked. ${error.message}` : "");
  return state;
}

async function verdict(given) {
  try {
    await ask("v1/limits", { key: given });
    return { state: "valid" };
  } catch (error) {
    return { state: stateOf(error), error };
  }
}

function stateOf({ code, status }) {
  if ([NO_KEY, "invalid_api_key", "too_many_wrong_keys"].includes(code)) return "refused";
  // It is known, but may not read its limits, or has asked too often.
  return status === 403 || status === 429 ? "valid" : "unchecked";
}

function refuse(error) {
  checking = null;
  use("", false);
  show("refused", error.message);
}

function forget(fault = "") {
  checking = null;
  use("", false);
  show("none", fault);
}

function toggle(isOpen) {
  const box = byId("key-box");
  // Whoever has gone on to something else meanwhile stays there.
  const isThere = box.contains(document.activeElement) || document.activeElement === document.body;
  box.hidden = !isOpen;
  byId("key-button").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) byId("key").focus();
  else if (isThere) (asker?.isConnected ? asker : byId("key-button")).focus();
  if (!isOpen) asker = null;
}

function use(given, forTab) {
  const isNew = given !== key;
  key = given;
  try {
    if (given && forTab) sessionStorage.setItem(STORED, given);
    else sessionStorage.removeItem(STORED);
  } catch {
    // A browser that stores nothing: then it is in memory alone.
  }
  if (isNew) changed.dispatchEvent(new Event("change"));
}

function read() {
  try {
    return sessionStorage.getItem(STORED) ?? "";
  } catch {
    return "";
  }
}

function show(state, fault = "") {
  if (state === "valid" || state === "none") byId("key").value = "";
  byId("key-button").dataset.state = state;
  byId("key-state").textContent = STATES[state];
  say(byId("key-fault"), fault);
  say(byId("key-link"), "");
}
