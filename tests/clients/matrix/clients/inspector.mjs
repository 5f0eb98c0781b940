// The command line of the MCP Inspector. Every call is a process of its own, and so a session of its own.
//
// Usage: node inspector.mjs PACKAGES URL     PACKAGES: the `node_modules` with the inspector

import { spawn } from 'node:child_process';
import process from 'node:process';

import { answerCalls } from './lines.mjs';

const [packages, url] = process.argv.slice(2);
const program = `${packages}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;

answerCalls(null, (tool, args) => {
  const given = Object.entries(args).flatMap(([key, value]) => ['--tool-arg', `${key}=${value}`]);
  const command = [program, '--cli', url, '--transport', 'http', '--method', 'tools/call', '--tool-name', tool, ...given];
  const env = { ...process.env, HOME: process.cwd(), MCP_CATALOG_PATH: `${process.cwd()}/catalog.json` };
  const inspector = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'pipe'], env });
  let out = '';
  let complaint = '';
  inspector.stdout.on('data', data => (out += data));
  inspector.stderr.on('data', data => (complaint += data));
  return new Promise((resolve, reject) => {
    inspector.on('close', status => {
      try {
        resolve(JSON.parse(out));
      } catch {
        const code = Number(/-3\d{4}/.exec(complaint)?.[0]);
        reject(Object.assign(new Error(complaint.trim() || `ended with ${status}`), { code: code || undefined }));
      }
    });
  });
});
