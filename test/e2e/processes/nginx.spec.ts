import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestHomeserver, describeWhere, eventually, freePort, type TestHomeserver } from '@rookery/testing';
import { exampleIn } from '../../support/operators.js';
import { expectOneServer } from './behind-proxy.js';

const describeWithNginx = describeWhere(spawnSync('nginx', ['-v']).status === 0, 'there is no nginx on this machine');

describeWithNginx('several processes behind nginx', () => {
  let homeserver: TestHomeserver;
  let folder: string;
  let nginx: ChildProcess;
  let port: number;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 2, settings: { presence: { enabled: false } } },
    });
    folder = await mkdtemp(join(tmpdir(), 'rookery-nginx-'));
    await mkdir(join(folder, 'logs'));
    port = await freePort();
    const [one, two] = homeserver.servers.map((server) => `127.0.0.1:${server.addresses[0]!.port}`);
    const upstream = /^upstream [^]*?^\}$/m
      .exec(exampleIn('scaling.md', 'nginx'))![0]
      .replace('10.0.0.1:8008', one!)
      .replace('10.0.0.2:8008', two!);
    const location = /^ {4}location [^]*?^ {4}\}$/m
      .exec(exampleIn('reverse-proxy.md', 'nginx'))![0]
      .replace(
        'http://127.0.0.1:8008;',
        'http://rookery; proxy_set_header Connection ""; proxy_next_upstream error timeout;',
      );
    // What the page says of the location, as it stands there.
    for (const line of [
      'proxy_pass http://rookery;',
      'proxy_set_header Connection "";',
      'proxy_next_upstream error timeout;',
    ])
      expect(exampleIn('scaling.md', 'nginx')).toContain(line);
    const file = join(folder, 'nginx.conf');
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (name) => `${name}_temp_path ${folder}/${name};`,
    );
    await writeFile(
      file,
      `daemon off; master_process off; pid ${folder}/nginx.pid; error_log ${folder}/logs/error.log;
      events {}
      http { access_log off; ${temporary.join(' ')}
      ${upstream}
      server { listen 127.0.0.1:${port};
      ${location}
      } }`,
    );
    nginx = spawn('nginx', ['-p', folder, '-c', file], { stdio: 'ignore' });
    await eventually(
      async () => (await fetch(`http://127.0.0.1:${port}/_matrix/client/versions`).catch(() => undefined))?.ok,
    );
  });
  afterAll(async () => {
    if (nginx?.exitCode === null) {
      const ended = new Promise((resolve) => nginx.once('exit', resolve));
      nginx.kill('SIGTERM');
      await ended;
    }
    await homeserver?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  it('are one server, and stay so when one of them is gone', () => expectOneServer(homeserver, port));
});
