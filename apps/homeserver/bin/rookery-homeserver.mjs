#!/usr/bin/env node
// Committed as it is, so that npm can link the command before anything is built.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const main = new URL('../dist/bundle/main.js', import.meta.url);
if (!existsSync(fileURLToPath(main))) {
  console.error('The homeserver is not built yet: run npm run build (npm start does it, too)');
  process.exit(1);
}
await import(main.href);
