// The official TypeScript client against a relay: it logs in by OAuth, lists what
// there is and makes the calls of a file. What happens is told on standard output,
// a JSON document a line; the address to authorise at is the first.
//
//   node client.mjs https://relay.example.org/mcp calls.json
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';

const [, , address, file] = process.argv;
const calls = JSON.parse(readFileSync(file, 'utf8'));
const tell = (what) => process.stdout.write(JSON.stringify(what) + '\n');

// Where the browser comes back to.
const callback = createServer();
callback.listen(0, '127.0.0.1');
await once(callback, 'listening');
const redirectUrl = `http://127.0.0.1:${callback.address().port}/callback`;
const code = new Promise((resolve, reject) => {
  callback.on('request', (request, response) => {
    const query = new URL(request.url, redirectUrl).searchParams;
    response.end('Back to the program.\n');
    query.get('code') ? resolve(query.get('code')) : reject(new Error(`refused: ${query.get('error')}`));
  });
});

const kept = {};
const authProvider = {
  redirectUrl,
  clientMetadata: {
    client_name: 'TypeScript client', redirect_uris: [redirectUrl], token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => tell({ authorize: url.href }),
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
};

const transport = () => new StreamableHTTPClientTransport(new URL(address), { authProvider });
const client = new Client({ name: 'farhand-mcp-test', version: '1.0.0' });
const first = transport();
try {
  await client.connect(first);
  throw new Error('connected without a token');
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
await first.finishAuth(await code);
callback.close();
await client.connect(transport());

const { tools } = await client.listTools();
const { resources } = await client.listResources();
const { resourceTemplates } = await client.listResourceTemplates();
tell({ tools: tools.map((tool) => tool.name), resources: resources.map((one) => one.uri), templates: resourceTemplates.length });
let progress = 0;
let terminal;
for (const { tool, arguments: args, fails } of calls) {
  if (args.terminal === '$terminal') args.terminal = terminal; // the one that was opened last
  // The client holds what comes back against the tool's outputSchema.
  const result = await client.callTool({ name: tool, arguments: args }, undefined, { onprogress: () => { progress++; } });
  const text = result.content.map((one) => one.text ?? one.type).join('');
  if (Boolean(result.isError) !== Boolean(fails)) throw new Error(`${tool} ${JSON.stringify(args)}: ${text}`);
  terminal = result.structuredContent?.terminal ?? terminal;
  tell({ tool, text });
}
for (const { uri } of resources) await client.readResource({ uri });
const refreshed = kept.tokens.refresh_token; // which a client uses when its token has run out
await transport().close();
await client.close();
tell({ done: true, progress, refreshable: Boolean(refreshed) });
