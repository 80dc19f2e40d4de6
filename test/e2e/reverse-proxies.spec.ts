import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describeWhere, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { exampleIn, pageText } from '../support/operators.js';
import { FederationWorld } from './federation/federation-world.js';

const serverName = 'matrix.example.org';
const run = promisify(execFile);

/** Where the example of a proxy finds what it names. */
interface Place {
  readonly folder: string;
  /** In place of 443, 8448 and 8008. */
  readonly ports: { readonly clients: number; readonly servers: number; readonly rookery: number };
  readonly cert: string;
  readonly key: string;
}

/** How a proxy is started with its example, which stands in the page for the usual ports and folders. */
interface Proxy {
  readonly language: string;
  readonly program: string;
  readonly version: readonly string[];
  readonly settings: (example: string, place: Place) => string;
  readonly start: (file: string, place: Place) => readonly string[];
}

/** Replaces what is there. @throws Error when it is not */
function replaced(text: string, ...changes: readonly (readonly [string | RegExp, string])[]): string {
  return changes.reduce((changed, [from, to]) => {
    const next = changed.replaceAll(typeof from === 'string' ? from : new RegExp(from, 'gm'), to);
    if (next === changed) throw new Error(`There is no ${String(from)} in the example`);
    return next;
  }, text);
}

const letsEncrypt = `/etc/letsencrypt/live/${serverName}`;

const proxies: readonly Proxy[] = [
  {
    ...{ language: 'nginx', program: 'nginx', version: ['-v'] },
    settings: (example, { folder, ports, cert, key }) => {
      const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
        .map((name) => `${name}_temp_path ${folder}/${name};`)
        .join(' ');
      const server = replaced(
        example,
        [/^ *listen \[::\].*$/, ''],
        ['listen 443', `listen 127.0.0.1:${ports.clients}`],
        ['listen 8448', `listen 127.0.0.1:${ports.servers}`],
        [`${letsEncrypt}/fullchain.pem`, cert],
        [`${letsEncrypt}/privkey.pem`, key],
        ['127.0.0.1:8008', `127.0.0.1:${ports.rookery}`],
      );
      return `daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr;
        events {}
        http { access_log off; ${temporary}
        ${server}
        }`;
    },
    start: (file, { folder }) => ['-p', folder, '-c', file, '-e', 'stderr'],
  },
  {
    ...{ language: 'caddyfile', program: 'caddy', version: ['version'] },
    settings: (example, { ports, cert, key }) => `{
        admin off
        auto_https off
        default_bind 127.0.0.1
      }
      ${replaced(
        example,
        [
          `${serverName}, ${serverName}:8448 {`,
          `https://${serverName}:${ports.clients}, https://${serverName}:${ports.servers} {\n    tls ${cert} ${key}`,
        ],
        ['127.0.0.1:8008', `127.0.0.1:${ports.rookery}`],
      )}`,
    start: (file) => ['run', '--config', file, '--adapter', 'caddyfile'],
  },
  {
    ...{ language: 'apache', program: 'apache2', version: ['-v'] },
    settings: (example, { folder, ports, cert, key }) => {
      const modules = ['mpm_event', 'authz_core', 'ssl', 'proxy', 'proxy_http', 'headers'].map(
        (name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`,
      );
      return [
        ...modules,
        ...[`ServerRoot ${folder}`, `PidFile ${folder}/apache.pid`, `DefaultRuntimeDir ${folder}`],
        ...[`ErrorLog ${folder}/error.log`, `Mutex file:${folder}`, `ServerName ${serverName}`],
        `Listen 127.0.0.1:${ports.clients}`,
        replaced(
          example,
          ['Listen 8448', `Listen 127.0.0.1:${ports.servers}`],
          ['*:443 *:8448', `*:${ports.clients} *:${ports.servers}`],
          [`${letsEncrypt}/fullchain.pem`, cert],
          [`${letsEncrypt}/privkey.pem`, key],
          ['127.0.0.1:8008', `127.0.0.1:${ports.rookery}`],
        ),
      ].join('\n');
    },
    start: (file) => ['-D', 'FOREGROUND', '-f', file],
  },
  {
    ...{ language: 'haproxy', program: 'haproxy', version: ['-v'] },
    settings: (example, { folder, ports }) =>
      `defaults
        timeout connect 5s
        ${'\n'}${replaced(
          example,
          ['bind :443,:8448', `bind 127.0.0.1:${ports.clients},127.0.0.1:${ports.servers}`],
          [`/etc/haproxy/certs/${serverName}.pem`, `${folder}/both.pem`],
          ['127.0.0.1:8008', `127.0.0.1:${ports.rookery}`],
        )}`,
    start: (file) => ['-db', '-f', file],
  },
];

const hasCurl = spawnSync('curl', ['--version']).status === 0;

for (const proxy of proxies) {
  const { language, program } = proxy;
  const isThere = spawnSync(program, [...proxy.version]).status === 0;
  describeWhere(isThere && hasCurl, `${isThere ? 'curl' : program} is not on this machine`)(
    `a server behind ${program}, as the page for operators has it`,
    () => {
      let world: FederationWorld;
      let homeserver: TestHomeserver;
      let alice: TestUser;
      let folder: string;
      let child: ChildProcess;
      let complaints = '';
      let answers = 0;
      let ports: Place['ports'];

      beforeAll(async () => {
        world = await FederationWorld.create();
        ports = { clients: await freePort(), servers: await freePort(), rookery: await freePort() };
        const listener = { port: ports.rookery, bind_addresses: ['127.0.0.1'], type: 'http', x_forwarded: true };
        homeserver = await world.homeserver(serverName, {
          settings: {
            public_baseurl: `https://${serverName}/`,
            listeners: [{ ...listener, resources: [{ names: ['client', 'federation'] }] }],
            email: { smtp_host: '127.0.0.1', smtp_port: 1, notif_from: `Rookery <rookery@${serverName}>` },
          },
        });
        alice = await homeserver.registerUser('alice');
        world.names.host(`${serverName}:8448`, { address: '127.0.0.1', port: ports.servers });

        folder = await mkdtemp(join(tmpdir(), 'rookery-proxy-'));
        const { cert, key } = world.authority.issue([serverName]);
        const place = { folder, ports, cert: join(folder, 'cert.pem'), key: join(folder, 'key.pem') };
        await writeFile(place.cert, cert);
        await writeFile(place.key, key);
        await writeFile(join(folder, 'both.pem'), `${cert}${key}`);
        await writeFile(join(folder, 'ca.pem'), world.authority.cert);
        const file = join(folder, 'settings');
        await writeFile(file, proxy.settings(exampleIn('reverse-proxy.md', language), place));
        child = spawn(program, [...proxy.start(file, place)], {
          env: { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
          stdio: ['ignore', 'ignore', 'pipe'],
        });
        child.stderr?.on('data', (data: Buffer) => (complaints += data.toString()));
        await eventually(async () => {
          if (child.exitCode !== null) throw new Error(`${program} has ended: ${complaints}`);
          return (await curl(`https://${serverName}/_matrix/client/versions`)).status === 200;
        });
      });
      afterAll(async () => {
        if (child?.exitCode === null) {
          const ended = new Promise((resolve) => child.once('exit', resolve));
          child.kill('SIGTERM');
          await ended;
        }
        await world?.stop();
        if (folder) await rm(folder, { recursive: true, force: true });
      });

      /** As somebody out in the world, who finds the proxy where the page has it. */
      async function curl(...args: readonly string[]): Promise<{ status: number; body: string }> {
        const led = [443, 8448].map(
          (port) => `${serverName}:${port}:127.0.0.1:${port === 443 ? ports.clients : ports.servers}`,
        );
        const out = join(folder, `answer${++answers}`);
        const { stdout } = await run('curl', [
          ...['-s', '--path-as-is', '--cacert', join(folder, 'ca.pem'), '-o', out, '-w', '%{http_code}'],
          ...led.flatMap((each) => ['--connect-to', each]),
          ...args,
        ]).catch(({ stdout }: { stdout: string }) => ({ stdout }));
        return {
          status: Number(stdout),
          body: Number(stdout) === 0 ? '' : await readFile(out, 'utf8').catch(() => ''),
        };
      }
      const bearer = (): string[] => ['-H', `Authorization: Bearer ${alice.accessToken}`];

      it('answers what the page asks', async () => {
        const lines = [...pageText('reverse-proxy.md').matchAll(/^curl (\S+) +# (.*)$/gm)];
        expect(lines).toHaveLength(3);
        const [versions, mails, version] = await Promise.all(lines.map(([, url]) => curl(url!)));
        expect(JSON.parse(versions!.body)).toMatchObject({ versions: expect.arrayContaining(['v1.11']) as unknown });
        expect([400, 404]).toContain(mails!.status);
        expect(mails!.body).not.toMatch(new RegExp(`${program}|not found</title>`, 'i'));
        expect(JSON.parse(version!.body)).toMatchObject({ server: { name: 'Rookery' } });
      });

      it('keeps to itself what is for administrators and for whoever watches', async () => {
        for (const path of ['/_synapse/admin/v1/server_version', '/_synapse/metrics', '/health']) {
          const { status, body } = await curl(`https://${serverName}${path}`);
          expect({ status, body }).toEqual({
            status: expect.any(Number),
            body: expect.not.stringMatching(/Rookery|synapse_|^OK$/),
          });
          expect(status).not.toBe(0);
        }
      });

      it('tells the address of whoever asks, whatever they claim', async () => {
        const claim = ['X-Forwarded-For: 192.0.2.7', 'X-Forwarded-Proto: http'].flatMap((header) => ['-H', header]);
        const { status } = await curl(...bearer(), ...claim, `https://${serverName}/_matrix/client/v3/sync`);
        expect(status).toBe(200);
        const { body } = await eventually(async () => {
          const answer = await alice.request<{ last_seen_ip?: string }>('GET', `/devices/${alice.deviceId}`);
          return typeof answer.body.last_seen_ip === 'string' && answer;
        });
        expect(body.last_seen_ip).toBe('127.0.0.1');
      });

      it('leaves paths as they are, which clients write and servers sign', async () => {
        const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
        const alias = encodeURIComponent(`#a//b c%2F:${serverName}`);
        const put = await alice.request('PUT', `/directory/room/${alias}`, { room_id: body.room_id });
        expect(put.status).toBe(200);
        const found = await curl(`https://${serverName}/_matrix/client/v3/directory/room/${alias}`);
        expect(JSON.parse(found.body)).toMatchObject({ room_id: body.room_id });

        const other = await world.played('played.test');
        for (const path of [
          '/_matrix/federation/v1/event/$a%2Fb%2bc+d',
          '/_matrix/federation/v1/event/%24a%2F..%2fb',
        ]) {
          const authorization = `Authorization: ${other.authorization('GET', path, serverName)}`;
          const answer = await curl('-H', authorization, `https://${serverName}:8448${path}`);
          expect({ path, ...(JSON.parse(answer.body) as object) }).toMatchObject({ path, errcode: 'M_NOT_FOUND' });
        }
      });

      it('lets large uploads through', async () => {
        const file = join(folder, 'large');
        await writeFile(file, Buffer.alloc(20 * 1_048_576, 7));
        const url = `https://${serverName}/_matrix/media/v3/upload`;
        const upload = await curl(...bearer(), '-H', 'Expect:', '--data-binary', `@${file}`, url);
        expect(upload).toMatchObject({ status: 200, body: expect.stringContaining('mxc://') as unknown });
      });

      it('lets other servers in', async () => {
        const two = await world.homeserver('two.test');
        const bob = await two.registerUser('bob');
        const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
        const joined = await bob.request('POST', `/join/${encodeURIComponent(body.room_id)}?via=${serverName}`, {});
        expect(joined).toMatchObject({ status: 200 });
        const path = `/rooms/${encodeURIComponent(body.room_id)}/send/m.room.message/1`;
        expect((await bob.request('PUT', path, { msgtype: 'm.text', body: 'from elsewhere' })).status).toBe(200);
        await eventually(async () =>
          JSON.stringify((await alice.request('GET', '/sync')).body).includes('from elsewhere'),
        );
      });
    },
  );
}
