// One turn of Claude Code with the given options: its exit status and the JSON that it wrote, line by line.
// npm ran no script of the package, so its own launcher for that case starts the program.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const launcher = fileURLToPath(new URL("node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs", import.meta.url));
const ran = spawnSync(process.execPath, [launcher, ...process.argv.slice(2)], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "inherit"],
});
const lines = ran.stdout.split("\n").filter((line) => line.startsWith("{"));
console.log(JSON.stringify({ status: ran.status, events: lines.map((line) => JSON.parse(line)) }));
