// A released collector: says where it listens, and then each span that it gets, as a line of JSON.
import mock from "@elastic/mockotlpserver";

const hex = (bytes) => Buffer.from(bytes ?? []).toString("hex");
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

function onTrace(request) {
  for (const resource of request.resourceSpans) {
    for (const scope of resource.scopeSpans) {
      for (const span of scope.spans) {
        say({ trace: hex(span.traceId), id: hex(span.spanId), parent: hex(span.parentSpanId), name: span.name });
      }
    }
  }
}

const server = new mock.MockOtlpServer({
  logLevel: "error",
  services: ["http", "grpc"],
  httpHostname: "127.0.0.1",
  httpPort: 0,
  grpcHostname: "127.0.0.1",
  grpcPort: 0,
  onTrace,
});
await server.start();
say({ http: server.httpUrl, grpc: server.grpcUrl });
