import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeWithRedis, freePort, makeTestDatabasePlace, TestRedis, testPostgresUrl } from '@rookery/testing';
import { stringify } from 'yaml';

const command = join(process.cwd(), 'apps/ctl/bin/synctl.mjs');

function run(folder: string, args: readonly string[]): Promise<{ code: number | null; output: string }> {
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const child = spawn(process.execPath, [command, ...args], { cwd: folder, env: environment });
  let output = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  child.stderr.on('data', (data: Buffer) => (output += data.toString()));
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, output })));
}

const isUp = async (baseUrl: string): Promise<boolean> =>
  (await fetch(`${baseUrl}/health`).catch(() => undefined))?.ok ?? false;

describe('synctl', () => {
  let folder: string;
  let file: string;
  let baseUrl: string;
  const settings = (more: object = {}): void =>
    writeFileSync(
      file,
      stringify({
        server_name: 'rookery.test',
        report_stats: false,
        pid_file: join(folder, 'run', 'homeserver.pid'),
        database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } },
        signing_key_path: join(folder, 'signing.key'),
        media_store_path: join(folder, 'media'),
        listeners: [
          { port: Number(new URL(baseUrl).port), bind_addresses: ['127.0.0.1'], type: 'http', resources: [] },
        ],
        ...more,
      }),
    );
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-synctl-'));
    file = join(folder, 'homeserver.yaml');
    baseUrl = `http://127.0.0.1:${await freePort()}`;
    settings();
  });
  afterAll(async () => {
    await synctl('stop', file);
    rmSync(folder, { recursive: true, force: true });
  });

  const synctl = (...args: string[]): ReturnType<typeof run> => run(folder, args);
  const answers = (): Promise<boolean> => isUp(baseUrl);
  const pid = (): number => Number(readFileSync(join(folder, 'run', 'homeserver.pid'), 'utf8'));

  it('starts, restarts and stops, with homeserver.yaml of this folder unless told', async () => {
    const started = await synctl('start');
    expect(started).toMatchObject({ code: 0, output: expect.stringMatching(/^homeserver started \(process \d+\)/) });
    expect(await answers()).toBe(true);
    const first = pid();
    expect(await synctl('start')).toEqual({ code: 1, output: `homeserver runs already (process ${first})\n` });
    const restarted = await synctl('restart', file);
    expect(restarted).toMatchObject({
      code: 0,
      output: expect.stringMatching(/^homeserver stopped\nhomeserver started/),
    });
    expect(pid()).not.toBe(first);
    expect(await answers()).toBe(true);
    expect(await synctl('stop')).toEqual({ code: 0, output: 'homeserver stopped\n' });
    expect(await answers()).toBe(false);
    expect(await synctl('stop')).toEqual({ code: 0, output: 'homeserver does not run\n' });
  });

  it('tells why a server does not start', async () => {
    settings({ signing_key_path: join(folder, 'homeserver.yaml') });
    const { code, output } = await synctl('start');
    settings();
    expect({ code, output }).toMatchObject({ code: 1, output: expect.stringContaining('homeserver.yaml') });
    expect(output).toMatch(/^homeserver did not start \(it ended with 1\):\n/);
  });

  it('needs to know where the process id is kept, and what to do', async () => {
    settings({ pid_file: undefined });
    const nowhere = await synctl('start');
    settings();
    expect(nowhere).toEqual({
      code: 1,
      output: 'Set pid_file in homeserver.yaml, so that the process can be found again\n',
    });
    expect((await synctl('jump')).code).toBe(2);
    expect((await synctl('--help')).output).toContain('--all-processes');
  });

  it('starts a worker by its own settings, behind those of the main process', async () => {
    writeFileSync(join(folder, 'nothing.yaml'), 'worker_name: one\n');
    expect((await synctl('start', '-w', 'nothing.yaml')).code).toBe(1);
    expect((await synctl('start', '-w', 'nothing.yaml', '-a', '.')).code).toBe(2);
    expect((await synctl('start', 'homeserver.yaml', 'nothing.yaml', '-a', '.')).code).toBe(2);
    expect((await synctl('start', 'homeserver.yaml', 'nothing.yaml')).output).toContain('has no worker_app');
  });
});

describeWithRedis('synctl with workers', () => {
  it('starts, restarts and stops one by its file, and all of a folder, the main process first', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-synctl-workers-'));
    const redis = await TestRedis.start();
    const place = await makeTestDatabasePlace('postgres');
    const ports = { main: await freePort(), one: await freePort(), two: await freePort() };
    const urlOf = (name: keyof typeof ports): string => `http://127.0.0.1:${ports[name]}`;
    const listener = (port: number): object => ({
      ...{ port, bind_addresses: ['127.0.0.1'], type: 'http' },
      resources: [{ names: ['client', 'federation'] }],
    });
    const up = async (): Promise<string[]> => {
      const all = ['main', 'one', 'two'] as const;
      const answers = await Promise.all(all.map((name) => isUp(urlOf(name))));
      return all.filter((_, index) => answers[index]);
    };
    try {
      const url = new URL(testPostgresUrl());
      const { args = {} } = place.options as { args?: Record<string, unknown> };
      const server = { host: url.hostname, port: Number(url.port), user: url.username, password: url.password };
      writeFileSync(
        join(folder, 'homeserver.yaml'),
        stringify({
          ...{ server_name: 'rookery.test', report_stats: false, pid_file: join(folder, 'main.pid') },
          ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
          database: { name: 'psycopg2', args: { ...server, ...args, cp_max: 5 } },
          redis: { enabled: true, host: '127.0.0.1', port: redis.port },
          instance_map: { main: { host: '127.0.0.1', port: ports.main } },
          listeners: [listener(ports.main)],
        }),
      );
      mkdirSync(join(folder, 'workers'));
      for (const name of ['one', 'two'] as const)
        writeFileSync(
          join(folder, 'workers', `${name}.yaml`),
          stringify({
            ...{ worker_app: 'synapse.app.generic_worker', worker_name: name },
            ...{ worker_pid_file: join(folder, `${name}.pid`), worker_listeners: [listener(ports[name])] },
          }),
        );
      const all = await run(folder, ['start', 'homeserver.yaml', '-a', 'workers']);
      expect(all).toMatchObject({
        code: 0,
        output: expect.stringMatching(/^homeserver started.*\none started.*\ntwo started/),
      });
      expect(await up()).toEqual(['main', 'one', 'two']);
      expect(await run(folder, ['stop', '-w', 'workers/one.yaml'])).toEqual({ code: 0, output: 'one stopped\n' });
      expect(await up()).toEqual(['main', 'two']);
      // The same by the file alone, and behind that of the main process.
      expect(await run(folder, ['start', 'homeserver.yaml', 'workers/one.yaml'])).toMatchObject({
        code: 0,
        output: expect.stringMatching(/^one started/),
      });
      expect(await run(folder, ['stop', 'workers/one.yaml'])).toEqual({ code: 0, output: 'one stopped\n' });
      expect(await up()).toEqual(['main', 'two']);
      const again = await run(folder, ['restart', '-w', 'workers/one.yaml']);
      expect(again).toMatchObject({ code: 0, output: expect.stringMatching(/^one does not run\none started/) });
      expect(await up()).toEqual(['main', 'one', 'two']);
      // Workers end before what they need.
      expect(await run(folder, ['stop', '-a', 'workers'])).toEqual({
        code: 0,
        output: 'two stopped\none stopped\nhomeserver stopped\n',
      });
      expect(await up()).toEqual([]);
    } finally {
      await run(folder, ['stop', '-a', 'workers']);
      await redis.stop();
      await place.remove();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
