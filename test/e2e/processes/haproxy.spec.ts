import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestHomeserver, describeWhere, eventually, freePort, type TestHomeserver } from '@rookery/testing';
import { exampleIn } from '../../support/operators.js';
import { expectOneServer } from './behind-proxy.js';

const describeWithHaproxy = describeWhere(
  spawnSync('haproxy', ['-v']).status === 0,
  'there is no haproxy on this machine',
);

describeWithHaproxy('several processes behind HAProxy', () => {
  let homeserver: TestHomeserver;
  let folder: string;
  let haproxy: ChildProcess;
  let port: number;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 2, settings: { presence: { enabled: false } } },
    });
    folder = await mkdtemp(join(tmpdir(), 'rookery-haproxy-'));
    port = await freePort();
    const [one, two] = homeserver.servers.map((server) => `127.0.0.1:${server.addresses[0]!.port}`);
    const frontend = /^frontend [^]*?(?=^backend )/m
      .exec(exampleIn('reverse-proxy.md', 'haproxy'))![0]
      .replace(/bind .*$/m, `bind 127.0.0.1:${port}`);
    const backend = exampleIn('scaling.md', 'haproxy').replace('10.0.0.1:8008', one!).replace('10.0.0.2:8008', two!);
    const file = join(folder, 'haproxy.cfg');
    await writeFile(file, `${frontend}\n${backend}`);
    // What is missing or wrong in them it says, and ends with a 1 or, where it would work all the same, with a 2.
    const check = spawnSync('haproxy', ['-c', '-f', file], { encoding: 'utf8' });
    expect({ status: check.status, said: check.stderr.match(/^.*(?:ALERT|WARNING).*$/gm) }).toEqual({
      ...{ status: 0, said: null },
    });
    haproxy = spawn('haproxy', ['-db', '-f', file], { stdio: 'ignore' });
    await eventually(
      async () => (await fetch(`http://127.0.0.1:${port}/_matrix/client/versions`).catch(() => undefined))?.ok,
    );
  });
  afterAll(async () => {
    if (haproxy?.exitCode === null) {
      const ended = new Promise((resolve) => haproxy.once('exit', resolve));
      haproxy.kill('SIGTERM');
      await ended;
    }
    await homeserver?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  it('are one server, and stay so when one of them is gone', () => expectOneServer(homeserver, port));
});
