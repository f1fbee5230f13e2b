// Elements made of names, attributes and text. Text is only ever text: nothing here reads HTML.
const HANDLER = /^on/i;

export const byId = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (HANDLER.test(name)) throw new Error(`no handler by attribute: ${name}`);
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

// Live regions and alerts: shown where there is something to say.
export function say(element, text) {
  element.textContent = text;
  if (element.getAttribute("role") === "alert") element.hidden = !text;
}

// One function a frame, the last one asked for.
export function onceAFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

export async function copy(text, button) {
  const before = button.dataset.words ?? (button.dataset.words = button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy it";
  }
  setTimeout(() => (button.textContent = before), 1600);
}

// On a phone the result is below what is asked: what hardly shows is scrolled to, and the focus stays.
export function bringUp(element, share) {
  const isLow = element.getBoundingClientRect().top > share * innerHeight;
  if (isLow) element.scrollIntoView({ block: "start" });
  return isLow;
}
