// Requests to this server, and its errors in plain words. The key goes into a header, and into nothing that is shown.
import { wordsOf } from "./words.js";

// The code of what was refused before it was sent.
export const NO_KEY = "no_key";

export class ApiError extends Error {
  constructor(status, code, said, retryAfterS, param = null) {
    super(said);
    Object.assign(this, { status, code, retryAfterS, param });
  }
}

// A path of this server, wherever a proxy has it.
export const urlOf = (path) => new URL(path, document.baseURI);

export async function open(path, { body, key, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Authorization"] = `Bearer ${key}`;
  const options = { method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store", redirect: "error" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let reply;
  try {
    reply = await fetch(urlOf(path), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    // A key with a letter that no header can have ends here too, and the browser's words would repeat it.
    if (key && /[^\x21-\x7e]/.test(key)) throw new ApiError(0, NO_KEY, "This is no key: it has a character that no key has.");
    throw new ApiError(0, "", "The server did not answer. Is it running, and is the network up?");
  }
  if (!reply.ok) throw await errorOf(reply, key);
  return reply;
}

export async function ask(path, options) {
  const reply = await open(path, options);
  return { body: await reply.json(), headers: reply.headers };
}

async function errorOf(reply, key) {
  let said = {};
  try {
    const { error, detail } = await reply.json();
    said = { ...error, issues: Array.isArray(detail) && detail.length ? detail : null };
  } catch {
    // Not this server's own error: a proxy's page.
  }
  return apiError(reply.status, said, Number(reply.headers.get("Retry-After")) || null, key);
}

export function apiError(status, said, retryAfterS, key) {
  const message = typeof said.message === "string" ? said.message : "";
  const words = wordsOf(status, said.code, message, retryAfterS, said.issues);
  return new ApiError(status, said.code ?? "", key ? words.replaceAll(key, "…") : words, retryAfterS, said.param);
}
