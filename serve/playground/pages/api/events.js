// Server-sent events of a reply: bytes in, the `data` of each event out, wherever the network cut them.
export async function* eventsOf(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const lines = new Lines();
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
      for (const line of lines.take(text, done)) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
      // An event without its empty line is not one.
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Lines end with CR, LF or both; a CR at the end of a chunk may be half of a pair.
export class Lines {
  #rest = "";

  take(text, isLast) {
    let found = this.#rest + text;
    this.#rest = "";
    if (!isLast && found.endsWith("\r")) {
      found = found.slice(0, -1);
      this.#rest = "\r";
    }
    const lines = found.split(/\r\n|\r|\n/);
    this.#rest = lines.pop() + this.#rest;
    return lines;
  }
}
