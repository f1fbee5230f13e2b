// A request as code. The key is never in it: it stands in the environment.
import { urlOf } from "../api/request.js";

const SHOWN = 3000;

// A long context is cut where it is shown, not where it is copied.
export const shortened = (code) => (code.length <= SHOWN ? code : `${code.slice(0, SHOWN)}\n… (Copy has all of it)`);

export function curl(path, body, { hasKey, options = "" }) {
  const key = hasKey ? ' \\\n  -H "Authorization: Bearer $PITH_KEY"' : "";
  // JSON has no line of its own inside, so nothing in it can end the text early.
  const json = JSON.stringify(body);
  const start = options ? `curl ${options}` : "curl";
  return `${start} ${quoted(urlOf(path).href)}${key} \\\n  -H "Content-Type: application/json" \\\n  --data-binary @- <<'JSON'\n${json}\nJSON\n`;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function python(path, body, { hasKey }) {
  const key = hasKey ? '\n    headers={"Authorization": f"Bearer {os.environ[\'PITH_KEY\']}"},' : "";
  return `${hasKey ? "import os\n\n" : ""}import httpx

reply = httpx.post(
    ${JSON.stringify(urlOf(path).href)},${key}
    json=${literal(body)},
    timeout=60,
)
reply.raise_for_status()
print(reply.json()["output"])
`;
}

// A value as Python writes it. JSON's strings are Python's but for halves of pairs, which JSON.stringify escapes.
function literal(value, indent = "    ") {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (typeof value === "string") return pythonString(value);
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const members = Array.isArray(value)
    ? value.map((one) => literal(one, inner))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}\n${members.map((member) => `${inner}${member},\n`).join("")}${indent}${close}`;
}

// A line separator of JavaScript's is a line's end to no Python, and JSON's escapes are Python's.
const pythonString = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029]/g, escaped);
const escaped = (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;
