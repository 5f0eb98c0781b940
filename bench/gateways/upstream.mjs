// The library of mcp-proxy (npm) in front of a server over HTTP, which its command line does not do.
//
// Usage: node upstream.mjs URL PORT
//
// As its documentation shows for stdio, and with a session upstream for each session.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Server } from "@modelcontextprotocol/server";
import { proxyServer, startHTTPServer } from "mcp-proxy";

const [url, port] = process.argv.slice(2);

await startHTTPServer({
  host: "127.0.0.1",
  port: Number(port),
  sseEndpoint: null,
  createServer: async () => {
    const client = new Client({ name: "mcp-proxy", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    const serverCapabilities = client.getServerCapabilities();
    const server = new Server(client.getServerVersion(), { capabilities: serverCapabilities });
    await proxyServer({ client, server, serverCapabilities });
    return server;
  },
});
