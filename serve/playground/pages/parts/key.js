// The project key: in memory, or for as long as the tab lives if its owner says so; nowhere else.
import { byId } from "./dom.js";

const STORED = "pith.key";
const changed = new EventTarget();
let key = "";

export const currentKey = () => key;
export const onKey = (listener) => changed.addEventListener("change", listener);

export function startKey() {
  key = read();
  const [button, box] = [byId("key-button"), byId("key-box")];
  if (key) box.querySelector("[value=session]").checked = true;
  button.addEventListener("click", () => toggle(box.hidden));
  box.addEventListener("keydown", (event) => event.key === "Escape" && toggle(false));
  box.addEventListener("submit", (event) => {
    event.preventDefault();
    use(byId("key").value.trim(), box.querySelector("[name=keep-key]:checked").value === "session");
    toggle(false);
  });
  byId("key-forget").addEventListener("click", () => use("", false));
  show();
}

export function askForKey() {
  toggle(true);
}

function toggle(isOpen) {
  byId("key-box").hidden = !isOpen;
  byId("key-button").setAttribute("aria-expanded", String(isOpen));
  (isOpen ? byId("key") : byId("key-button")).focus();
}

function use(given, forTab) {
  key = given;
  byId("key").value = "";
  try {
    if (given && forTab) sessionStorage.setItem(STORED, given);
    else sessionStorage.removeItem(STORED);
  } catch {
    // A browser that stores nothing: then it is in memory alone.
  }
  show();
  changed.dispatchEvent(new Event("change"));
}

function read() {
  try {
    return sessionStorage.getItem(STORED) ?? "";
  } catch {
    return "";
  }
}

function show() {
  byId("key-button").classList.toggle("has-key", Boolean(key));
  byId("key-state").textContent = key ? "Key in use" : "Add a key";
}
