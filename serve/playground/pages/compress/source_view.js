// The source in pieces. At another size only those pieces change that come or go.
import { make } from "../parts/dom.js";
import { membership, piecesOf } from "./spans.js";

export class SourceView {
  constructor(element) {
    this.element = element;
    this.pieces = [];
    this.parts = [];
    this.shown = new Uint8Array();
  }

  load(text, sizes) {
    this.pieces = piecesOf(text, sizes);
    this.shown = new Uint8Array(this.pieces.length).fill(2);
    this.parts = this.pieces.map((piece) => make("span", {}, piece.text));
    this.members = new WeakMap();
    // Of the same text, the reader stays where they are.
    const top = text === this.text ? this.element.scrollTop : 0;
    this.text = text;
    this.element.replaceChildren(...this.parts);
    this.element.scrollTop = top;
  }

  show(size) {
    if (!this.members.has(size)) this.members.set(size, membership(this.pieces, size.kept));
    const wanted = this.members.get(size);
    for (let at = 0; at < wanted.length; at++) {
      if (wanted[at] === this.shown[at]) continue;
      const part = this.parts[at];
      part.classList.toggle("kept", wanted[at] === 1);
      part.classList.toggle("cut", wanted[at] === 0);
      if (wanted[at]) part.removeAttribute("role");
      else part.setAttribute("role", "deletion");
    }
    this.shown = wanted;
  }

  // Go to a place: it is focused, so that a screen reader reads on from there, and marked until the next one is.
  goTo({ start, end }) {
    this.forget();
    const chosen = this.parts.filter((_, at) => this.pieces[at].start < end && this.pieces[at].end > start);
    if (!chosen.length) return;
    chosen.forEach((part) => part.classList.add("spot"));
    chosen[0].tabIndex = -1;
    chosen[0].focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    chosen[0].scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  }

  forget() {
    for (const part of this.element.querySelectorAll(".spot")) {
      part.classList.remove("spot");
      part.removeAttribute("tabindex");
    }
  }
}
