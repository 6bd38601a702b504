// `glovebox mcp` as the official TypeScript SDK sees it, which agent programs are built on; it checks every document against the
// schema that the tool promised.
//
//     node typescript_sdk.mjs PATH-OF-GLOVEBOX
//
// `cargo xtask test` installs the SDK and runs this. The last line says how many passed and failed.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "x.js"));
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

const glovebox = resolve(process.argv[2]);

const tests = {
  async "tools are listed and each says what it is for"(client) {
    const { tools } = await client.listTools();
    assert.equal(tools.length, 19);
    for (const tool of tools) assert.ok(tool.description && tool.annotations.title, tool.name);
    assert.match(client.getInstructions(), /no network/);
  },
  async "a document fits the schema that was promised"(client) {
    await client.listTools(); // From now on the client compares.
    const result = await client.callTool({ name: "run_command", arguments: { command: "echo hi; exit 2" } });
    assert.equal(result.structuredContent.exit_code, 2);
    const code = await client.callTool({ name: "run_code", arguments: { code: "print(6 * 7)" } });
    assert.equal(code.structuredContent.stdout, "42\n");
    for (const name of ["usage", "list_processes", "list_changes"]) {
      const { structuredContent } = await client.callTool({ name, arguments: {} });
      assert.ok(structuredContent, name);
    }
  },
  async "an error is a result with a hint"(client) {
    await client.listTools();
    const result = await client.callTool({ name: "apply_changes", arguments: {} });
    assert.ok(result.isError && result.content[0].text.includes("hint:"));
  },
  async "progress is told, and a call that is aborted ends"(client) {
    const told = [];
    await client.callTool({ name: "run_command", arguments: { command: "sleep 1.2" } }, undefined, {
      onprogress: (progress) => told.push(progress.progress),
    });
    assert.ok(told.length >= 2 && told[0] < told[1], `${told}`);
    const ending = new AbortController();
    setTimeout(() => ending.abort(), 300);
    const call = client.callTool({ name: "run_command", arguments: { command: "sleep 600" } }, undefined, {
      signal: ending.signal,
    });
    await assert.rejects(call);
    const next = await client.callTool({ name: "run_command", arguments: { command: "echo on" } });
    assert.match(next.content[0].text, /^on\n/);
  },
  async "resources and prompts are there"(client) {
    await client.callTool({ name: "write_file", arguments: { path: "a b.txt", content: "text" } });
    const { resources } = await client.listResources();
    const file = resources.find((one) => one.uri === "workspace:///agent_workspace/a%20b.txt");
    const { contents } = await client.readResource({ uri: file.uri });
    assert.equal(contents[0].text, "text");
    const { messages } = await client.getPrompt({ name: "how_to_work_here", arguments: {} });
    assert.match(messages[0].content.text, /sandbox/);
  },
};

let [passed, failed] = [0, 0];
for (const [name, test] of Object.entries(tests)) {
  const data = mkdtempSync(join(tmpdir(), "glovebox-mcp-"));
  const client = new Client({ name: "test", version: "1" });
  try {
    await client.connect(new StdioClientTransport({ command: glovebox, args: ["mcp", "--data-dir", data] }));
    await test(client);
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n    ${String(error.stack).slice(0, 1500).replaceAll("\n", "\n    ")}`);
  } finally {
    await client.close();
    rmSync(data, { recursive: true, force: true });
  }
}
console.log(`typescript sdk: ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
