// Tabs by the ARIA pattern: arrows move, the address's hash names the open one, so that it can be linked and gone back to.
import { byId } from "./dom.js";

const NAMES = ["compare", "compress", "chat", "catalog", "usage", "proof"];
const tab = (name) => byId(`tab-${name}`);

export function startTabs(onOpen) {
  for (const name of NAMES) {
    tab(name).addEventListener("click", () => go(name));
    tab(name).addEventListener("keydown", (event) => move(event, NAMES.indexOf(name)));
  }
  addEventListener("hashchange", () => open(named(), onOpen));
  open(named(), onOpen);
}

export function go(name) {
  if (named() !== name) location.hash = name;
}

function named() {
  const name = location.hash.slice(1);
  return NAMES.includes(name) ? name : NAMES[0];
}

function open(wanted, onOpen) {
  for (const name of NAMES) {
    const isOpen = name === wanted;
    tab(name).setAttribute("aria-selected", String(isOpen));
    tab(name).tabIndex = isOpen ? 0 : -1;
    byId(`panel-${name}`).hidden = !isOpen;
  }
  document.title = `${tab(wanted).textContent} · pith playground`;
  onOpen(wanted);
}

function move(event, at) {
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: NAMES.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const name = NAMES[(to + NAMES.length) % NAMES.length];
  go(name);
  tab(name).focus();
}
