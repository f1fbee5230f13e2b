// Compressions asked of the server: one at a time, the latest wins, and none twice.
import { ask } from "../api/request.js";
import { currentKey } from "../parts/key.js";

const KEPT = 24;

export class Compressions {
  #known = new Map();
  #running = null;

  // The answer; null where a later request took its place.
  async get(body) {
    const key = currentKey();
    const asked = JSON.stringify([Boolean(key), body]);
    this.cancel();
    if (this.#known.has(asked)) return this.#known.get(asked);
    const running = (this.#running = new AbortController());
    try {
      const found = await ask(pathFor(key), { body, key, signal: running.signal });
      if (this.#running !== running) return null;
      this.#keep(asked, found);
      return found;
    } catch (error) {
      if (error.name === "AbortError") return null;
      throw error;
    } finally {
      if (this.#running === running) this.#running = null;
    }
  }

  cancel() {
    this.#running?.abort();
    this.#running = null;
  }

  #keep(asked, found) {
    this.#known.set(asked, found);
    if (this.#known.size > KEPT) this.#known.delete(this.#known.keys().next().value);
  }
}

export const pathFor = (key) => (key ? "v1/compress" : "v1/demo/compress");
