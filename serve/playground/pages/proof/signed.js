// Signed notes and the Merkle tree of a transparency log, by the browser's own cryptography: C2SP's formats, RFC 9162's hashes.
export const [ED25519, COSIGNATURE] = [1, 4];
const text = new TextEncoder();

export class Wrong extends Error {
  constructor(kind, what) {
    super(what);
    this.kind = kind;
  }
}

export function need(holds, kind, what) {
  if (!holds) throw new Wrong(kind, what);
}

// Whether this browser can check signatures here: an address without https has no cryptography.
export async function canCheck() {
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(32), "Ed25519", false, ["verify"]);
    return true;
  } catch {
    return false;
  }
}

export const bytes = (base64) => Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
export const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(parts)));
export const same = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

function joined(parts) {
  const all = parts.map((part) => (typeof part === "string" ? text.encode(part) : part));
  const whole = new Uint8Array(all.reduce((size, part) => size + part.length, 0));
  all.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}

export async function keyOf(written, algorithm) {
  const [name, id, ...rest] = written.trim().split("+");
  const data = bytes(rest.join("+"));
  const own = (await sha256(`${name}\n`, data)).slice(0, 4);
  const hex = [...own].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  need(data.length === 33 && data[0] === algorithm && hex === id, "key", `${written.slice(0, 80)} is no key for this (name+id+key)`);
  const key = await crypto.subtle.importKey("raw", data.slice(1), "Ed25519", false, ["verify"]);
  return { name, id: own, algorithm, key };
}

// The text of a note that this key has signed and, of a cosignature, when.
export async function opened(note, key, kind) {
  const end = note.lastIndexOf("\n\n");
  const said = note.slice(0, end + 1);
  const lines = note.slice(end + 2).split("\n").filter((line) => line.startsWith(`— ${key.name} `));
  const found = lines.map((line) => bytes(line.split(" ")[2])).find((data) => same(data.slice(0, 4), key.id));
  need(end > 0 && found, kind, `it has no signature of ${key.name}`);
  let [signed, signature, at] = [text.encode(said), found.slice(4), null];
  if (key.algorithm === COSIGNATURE) {
    const seconds = signature.slice(0, 8).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
    [signed, signature, at] = [joined([`cosignature/v1\ntime ${seconds}\n`, signed]), signature.slice(8), Number(seconds) * 1000];
  }
  need(await crypto.subtle.verify("Ed25519", key.key, signature, signed), kind, `the signature of ${key.name} is wrong`);
  return { said, at };
}

export async function checkpointOf(note, key, kind) {
  const [origin, digits, root] = (await opened(note, key, kind)).said.split("\n");
  const size = Number(digits);
  need(origin === key.name && Number.isSafeInteger(size) && String(size) === digits, kind, `it is no checkpoint of ${key.name}`);
  return { size, root: bytes(root) };
}

export async function checkPromise(note, key, digest, kind) {
  const due = `${key.name}/receipt\n${btoa(String.fromCharCode(...digest))}\n`;
  need((await opened(note, key, kind)).said === due, kind, "a note promises another record than the one beside it");
}

const node = (left, right) => sha256([1], left, right);
const split = (width) => 2 ** Math.floor(Math.log2(width - 1));

export async function rootOf(size, leaves, nodes) {
  async function over(begin, end, first, last) {
    if (first === last) {
      need(nodes.length, "malformed", "nodes are missing");
      return nodes.pop();
    }
    if (end - begin === 1) return leaves[first].hash;
    const middle = begin + split(end - begin);
    let at = first;
    while (at < last && leaves[at].index < middle) at += 1;
    const left = await over(begin, middle, first, at);
    return node(left, await over(middle, end, at, last));
  }
  nodes.reverse();
  return over(0, size, 0, leaves.length);
}

// RFC 9162, 2.1.4.
export async function isBeginning(old, now, path) {
  const next = () => (need(path.length, "history", "the proof is too short"), path.shift());
  async function both(older, newer, isLeft) {
    if (older === newer) {
      const beginning = isLeft ? old.root : next();
      return [beginning, beginning];
    }
    const middle = split(newer);
    if (older <= middle) {
      const [before, after] = await both(older, middle, isLeft);
      return [before, await node(after, next())];
    }
    const [before, after] = await both(older - middle, newer - middle, false);
    const left = next();
    return [await node(left, before), await node(left, after)];
  }
  if (old.size === 0) return true;
  const [before, after] = await both(old.size, now.size, true);
  return same(before, old.root) && same(after, now.root) && path.length === 0;
}
