// What an error means to the person in front of it, and what to do about it.
import { issueWords } from "./refusals.js";

// In place of a status, a stream that ended in an error event: with the bill of what had arrived, and without one.
export const CHARGED = "charged";
export const BROKE_OFF = "broke off";

const WORDS = {
  401: () => "This needs a key. Add one with the button at the top.",
  402: (code) =>
    code === "billing_disabled"
      ? "Billing is off for this workspace. Ask whoever runs the server to turn it on."
      : "The spend limit would be exceeded by what this request can cost. Raise the limit, or ask for fewer tokens.",
  403: (code, said) =>
    code === "invalid_api_key" || !code ? "The server does not accept this key: it is mistyped, or was revoked, or has expired." : said,
  404: (code, said) => said || "This server does not have it.",
  413: () => "That is larger than this server takes.",
  422: (code, said, wait, issues) => (issues ? issueWords(issues) : said || "The server cannot use this request."),
  429: (code, said, wait) =>
    `${/demo/i.test(said) ? "That was the demo’s limit for now. A key has limits of its own." : "Too many requests for now."} ${wait}`,
  500: () => "Something is wrong with the server. The request can be tried again.",
  // Without a code it is a proxy's, which does not know what was charged.
  502: (code) => (code ? "The model failed on this request. Nothing was charged; try again." : "The server did not answer."),
  503: (code, said, wait) => `${busy(code, said)} ${wait}`,
  [CHARGED]: () => "The reply broke off: the server failed. What had arrived is charged.",
  [BROKE_OFF]: () => "The reply broke off: the server failed. What had arrived may be charged.",
};

export function wordsOf(status, code, said, retryAfterS, issues) {
  const wait = retryAfterS ? `Try again in ${retryAfterS} s.` : "Try again in a moment.";
  const words = WORDS[status] ? WORDS[status](code, sentence(said), wait, issues) : sentence(said) || `The server answered ${status}.`;
  return words.trim();
}

function busy(code, said) {
  if (code === "compression_timed_out") return "The compression took longer than it may.";
  if (code?.startsWith("compressor")) return "The compressor is busy or starting.";
  if (code?.startsWith("engine")) return "The model is busy or starting.";
  return said ? `The server cannot do this now: ${said}` : "The server cannot do this now.";
}

function sentence(said) {
  if (!said) return "";
  const text = said[0].toUpperCase() + said.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
