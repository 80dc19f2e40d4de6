import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, freePort } from '@rookery/testing';
import { stringify } from 'yaml';
import type { Terminal } from '../terminal.js';
import { developModule } from './module-dev.js';

let folder: string;
let file: string;
let port: number;
let ending: AbortController;
let out: string[];
let notes: string[];
let running: Promise<void>;

const terminal: Terminal = {
  out: (line) => void out.push(line),
  note: (line) => void notes.push(line),
  ask: () => Promise.reject(new Error('nobody to ask')),
  askSecret: () => Promise.reject(new Error('nobody to ask')),
};
const source = (judgement: string): string => `
  import { Codes, defineModule, NOT_SPAM } from '@rookery/module-api';
  export default defineModule({ name: 'judge', register(api) {
    api.registerSpamCheckerCallbacks({ checkEventForSpam: ({ type }) => type === 'm.room.message' ? ${judgement} : NOT_SPAM });
  } });`;

// What this process runs its sources with is not for the module's build.
const nodeOptions = process.env.NODE_OPTIONS;
beforeAll(() => void delete process.env.NODE_OPTIONS);
afterAll(() => void (nodeOptions === undefined || (process.env.NODE_OPTIONS = nodeOptions)));

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-dev-'));
  file = join(folder, 'homeserver.yaml');
  port = await freePort();
  [out, notes, ending] = [[], [], new AbortController()];
  running = Promise.resolve();
  const listener = { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] };
  writeFileSync(
    file,
    stringify({
      ...{ server_name: 'dev.test', report_stats: false, macaroon_secret_key: 'm', form_secret: 'f' },
      ...{ enable_registration: true, enable_registration_without_verification: true, bcrypt_rounds: 4 },
      ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } },
      listeners: [listener],
      modules: [{ module: './judge' }],
    }),
  );
});
afterEach(async () => {
  ending.abort();
  await running.catch(() => {});
  rmSync(folder, { recursive: true, force: true });
});

async function call(
  method: string,
  path: string,
  body: object,
  token?: string,
): Promise<[number, Record<string, string>]> {
  const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const url = `http://127.0.0.1:${port}/_matrix/client/v3${path}`;
  const answer = await fetch(url, { method, headers, body: JSON.stringify(body) });
  return [answer.status, (await answer.json()) as Record<string, string>];
}

it('runs a module, builds and reloads it when its code changes, and says what it did', async () => {
  mkdirSync(join(folder, 'judge/src'), { recursive: true });
  const copy = 'node build.cjs';
  writeFileSync(
    join(folder, 'judge/build.cjs'),
    `const fs = require('node:fs');
    const code = fs.readFileSync('src/index.js', 'utf8');
    if (code.includes('BROKEN')) throw new Error('it is broken');
    fs.mkdirSync('dist', { recursive: true });
    fs.writeFileSync('dist/index.js', code);`,
  );
  writeFileSync(
    join(folder, 'judge/package.json'),
    JSON.stringify({ name: 'judge', type: 'module', exports: './dist/index.js', scripts: { build: copy } }),
  );
  const write = (code: string): void => writeFileSync(join(folder, 'judge/src/index.js'), code);
  write(source('NOT_SPAM'));
  running = developModule('./judge', [file], terminal, ending.signal);
  await Promise.race([eventually(() => notes.some((note) => note.startsWith('The server runs'))), running]);

  const account = { username: 'ann', password: 'a password of ann', auth: { type: 'm.login.dummy' } };
  const [, { access_token: token }] = await call('POST', '/register', account);
  const [, { room_id: roomId }] = await call('POST', '/createRoom', {}, token);
  let txn = 0;
  const say = (): Promise<[number, Record<string, string>]> =>
    call('PUT', `/rooms/${roomId}/send/m.room.message/${txn++}`, { msgtype: 'm.text', body: 'x' }, token);
  expect((await say())[0]).toBe(200);
  const about = `judge checkEventForSpam(m.room.message in ${roomId})`;
  await eventually(() => out.some((line) => line.startsWith(`@ann:dev.test  ${about}  ok`)));

  // As many editors save: another file in its place. What is written into that one counts, too.
  writeFileSync(join(folder, 'saved.js'), `${source('NOT_SPAM')}\n`);
  renameSync(join(folder, 'saved.js'), join(folder, 'judge/src/index.js'));
  await eventually(() => notes.includes('Reloaded judge.'));
  notes.splice(0);
  write(`BROKEN ${source('NOT_SPAM')}`);
  await eventually(() => notes.some((note) => note.includes('it is broken')));
  expect((await say())[0]).toBe(200);
  // What escapes from the module ends nothing, as in the server itself.
  write(source(`{ errcode: Codes.FORBIDDEN, message: setTimeout(() => { throw new Error('late'); }) && 'not that' }`));
  await eventually(() => notes.includes('Reloaded judge.'));
  expect((await say())[0]).toBe(403);
  await eventually(() => out.some((line) => line.includes(`${about}  refused  M_FORBIDDEN: not that`)));
  write('export default 7;');
  await eventually(() => notes.some((note) => note.startsWith('The code from before goes on:')));
  expect((await say())[0]).toBe(403);
});

it('takes the folder of a module that is installed as a link, and builds it there', async () => {
  const own = join(folder, 'elsewhere/linked');
  mkdirSync(own, { recursive: true });
  const build = `node -e "require('node:fs').copyFileSync('code.js', 'index.js')"`;
  writeFileSync(
    join(own, 'package.json'),
    JSON.stringify({ name: 'linked', type: 'module', exports: './index.js', scripts: { build } }),
  );
  writeFileSync(join(own, 'code.js'), source('NOT_SPAM'));
  mkdirSync(join(folder, 'modules/node_modules'), { recursive: true });
  symlinkSync(own, join(folder, 'modules/node_modules/linked'));
  writeFileSync(file, readFileSync(file, 'utf8').replace('./judge', 'linked'));
  running = developModule(own, [file], terminal, ending.signal);
  await Promise.race([eventually(() => notes.some((note) => note.startsWith('The server runs'))), running]);
});

it('says what it needs', async () => {
  await expect(developModule('./other', [file], terminal, ending.signal)).rejects.toThrow('list no module');
});
