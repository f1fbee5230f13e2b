// The models that are up, and how long the page has waited for one that is not.
import { ask } from "../api/request.js";

const LOOK_MS = 2000;
const TICK_MS = 1000;

export class Running {
  #up = {};
  #waiting = new Map();

  // Names of models stand in these lists; one that is not up says so there.
  constructor(lists) {
    this.lists = lists;
    for (const list of lists) list.addEventListener("focus", () => this.look());
    addEventListener("hashchange", () => this.look());
    this.look();
  }

  isDown(id) {
    return this.#up[id] === false;
  }

  async look() {
    try {
      this.#up = (await ask("playground/running.json")).body.models;
    } catch {
      // Then it is not known, and nothing is said of it.
      this.#up = {};
    }
    this.show();
  }

  // Tell of the wait for a model each second, in words, until the function that this returns is called.
  wait(model, tell) {
    const began = performance.now();
    this.#waiting.set(model.id, began);
    let asked = began;
    const tick = () => {
      const now = performance.now();
      const seconds = Math.floor((now - began) / 1000);
      if (seconds) tell(this.isDown(model.id) ? `${model.name} is starting, ${seconds} s…` : `Waiting for ${model.name}, ${seconds} s…`);
      this.show();
      if (now - asked < LOOK_MS) return;
      asked = now;
      this.look();
    };
    const timer = setInterval(tick, TICK_MS);
    this.look();
    return () => {
      clearInterval(timer);
      if (this.#waiting.get(model.id) === began) this.#waiting.delete(model.id);
      tell("");
      this.look();
    };
  }

  show() {
    for (const list of this.lists) {
      for (const option of list.options) {
        const name = (option.dataset.name ??= option.textContent);
        const words = this.isDown(option.value) ? `${name} · ${this.#state(option.value)}` : name;
        if (option.textContent !== words) option.textContent = words;
      }
      list.dispatchEvent(new Event("running"));
    }
  }

  #state(id) {
    const began = this.#waiting.get(id);
    return began === undefined ? "not running" : `starting, ${Math.floor((performance.now() - began) / 1000)} s`;
  }
}
