// Starts the playground: what the server is, the key, the tabs and their views.
import { ask } from "./api/request.js";
import { startCatalog } from "./catalog/catalog.js";
import { startChat } from "./chat/chat.js";
import { startCompare } from "./compare/compare.js";
import { startCompress } from "./compress/compress.js";
import { byId, say } from "./parts/dom.js";
import { startKey } from "./parts/key.js";
import { Running } from "./parts/running.js";
import { startTabs } from "./parts/tabs.js";
import { startProof } from "./proof/proof.js";
import { startUsage } from "./usage/usage.js";

async function start() {
  startKey();
  // With a hash of its own this would open a tab.
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  const opened = new Map();
  startTabs((name) => opened.get(name)?.());
  let about;
  try {
    about = (await ask("playground/about.json")).body;
  } catch (error) {
    say(byId("fault"), error.message);
    return;
  }
  const running = new Running([byId("compare-model"), byId("chat-model"), byId("compressor")]);
  startCompare(about, running);
  startCompress(about, running);
  startChat(about, running);
  startCatalog(about);
  opened.set("usage", startUsage());
  opened.set("proof", startProof());
  opened.get(location.hash.slice(1))?.();
  document.documentElement.dataset.ready = "true";
}

start();
