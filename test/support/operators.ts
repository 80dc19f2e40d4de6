import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { DatabasePlace } from './server-process.js';

const command = join(process.cwd(), 'apps/ctl/bin/rookery.mjs');

/** Runs the `rookery` command as an operator does. @returns how it ended, and what it printed on both streams */
export function rookery(...args: readonly string[]): Promise<{ code: number | null; output: string }> {
  return rookeryIn(process.cwd(), ...args);
}

/** The same in a folder. */
export function rookeryIn(
  folder: string,
  ...args: readonly string[]
): Promise<{ code: number | null; output: string }> {
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const child = spawn(process.execPath, [command, ...args], {
    ...{ cwd: folder, env: environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  child.stderr.on('data', (data: Buffer) => (output += data.toString()));
  // Not `exit`: what was written last may arrive after that.
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, output })));
}

/** A page for operators. */
export const pageText = (page: string): string => readFileSync(join(process.cwd(), 'docs/operators', page), 'utf8');

/** The first example in a language that a page for operators shows. @throws Error when there is none */
export function exampleIn(page: string, language: string): string {
  const [, found] = new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, 'm').exec(pageText(page)) ?? [];
  if (found === undefined) throw new Error(`no example of ${language} in ${page}`);
  return found;
}

/** As after a fire: the machine's folder is empty, and on PostgreSQL the database is a new one. */
export async function burn(folder: string, place: DatabasePlace): Promise<void> {
  for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true });
  if (!('name' in place)) return;
  const client = new pg.Client({ connectionString: process.env['ROOKERY_TEST_POSTGRES'] });
  await client.connect();
  await client.query(`DROP DATABASE ${place.name} WITH (FORCE)`);
  await client.query(`CREATE DATABASE ${place.name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'`);
  await client.end();
}
