// Where the parts kept are. The server counts code points, strings of a browser count UTF-16 units.

// The UTF-16 offset of each of these code points of `text`.
export function utf16Offsets(text, codePoints) {
  const found = new Map();
  const wanted = [...new Set(codePoints)].sort((a, b) => a - b);
  let point = 0;
  let at = 0;
  for (const next of wanted) {
    while (point < next && at < text.length) {
      at += text.codePointAt(at) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.set(next, at);
  }
  return found;
}

// Pieces of the text that no size cuts, in order: each is kept whole or left out whole, whatever the size.
export function piecesOf(text, sizes) {
  const points = [0, codePoints(text)];
  for (const size of sizes) {
    for (const [start, end] of size.kept) points.push(start, end);
    for (const flag of size.receipt.risk_flags) for (const place of flag.examples) points.push(place.start, place.end);
  }
  const offsets = utf16Offsets(text, points);
  const cuts = [...offsets.keys()];
  return cuts.slice(0, -1).map((start, number) => ({
    start,
    end: cuts[number + 1],
    text: text.slice(offsets.get(start), offsets.get(cuts[number + 1])),
  }));
}

export function codePoints(text) {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at++) if (text.codePointAt(at) > 0xffff) { count--; at++; }
  return count;
}

// For each piece, 1 where it is kept.
export function membership(pieces, kept) {
  const spans = [...kept].sort((a, b) => a[0] - b[0]);
  const found = new Uint8Array(pieces.length);
  let at = 0;
  pieces.forEach((piece, number) => {
    while (at < spans.length && spans[at][1] <= piece.start) at++;
    found[number] = at < spans.length && spans[at][0] <= piece.start && piece.end <= spans[at][1] ? 1 : 0;
  });
  return found;
}

// The output: the parts kept, in their order.
export function outputOf(text, kept) {
  const offsets = utf16Offsets(text, kept.flat());
  return kept.map(([start, end]) => text.slice(offsets.get(start), offsets.get(end))).join("");
}
