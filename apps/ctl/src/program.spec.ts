import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { loadConfig } from '@rookery/platform';
import { makeTestAuthority } from '@rookery/testing';
import { registrationMac } from './commands/register-user.js';
import { runProgram } from './program.js';
import type { Terminal } from './terminal.js';
import { CommandError } from './command-error.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-ctl-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function rookery(
  args: string[],
  answers: string[] = [],
): Promise<{ code: number; out: string; notes: string; asked: string[] }> {
  const out: string[] = [];
  const notes: string[] = [];
  const asked: string[] = [];
  const answer = (question: string): string => {
    asked.push(question);
    const next = answers.shift();
    if (next === undefined) throw new CommandError('There is no answer', 2);
    return next;
  };
  const terminal: Terminal = {
    out: (line) => out.push(line),
    note: (line) => notes.push(line),
    ask: async (question, initial) => answer(question) || (initial ?? ''),
    askSecret: async (question) => answer(question),
  };
  const code = await runProgram(args, terminal);
  return { code, out: out.join('\n'), notes: notes.join('\n'), asked };
}

/** The program in a folder where there is nothing: whoever runs these tests may have a server's settings in their own. */
async function inEmptyFolder(...args: string[]): Promise<{ code: unknown; out: string; notes: string }> {
  const cwd = mkdtempSync(join(folder, 'empty-'));
  const command = new URL('../bin/rookery.mjs', import.meta.url).pathname;
  const { NODE_OPTIONS: _, ...env } = process.env;
  return new Promise((resolve) =>
    execFile(process.execPath, [command, ...args], { cwd, env }, (error, out, notes) =>
      resolve({ code: error?.code ?? 0, out, notes }),
    ),
  );
}

describe('rookery', () => {
  it.each([
    [['--help'], 'register-user'],
    [['config', '--help'], 'generate'],
    [['config', 'check', '--help'], '--strict'],
    [['config', 'generate', '--help'], '--server-name'],
    [['register-user', '--help'], '--shared-secret'],
    [['hash-password', '--help'], '--rounds'],
  ])('%s explains itself', async (args, expected) => {
    const { code, out } = await rookery(args);
    expect(code).toBe(0);
    expect(out).toContain(expected);
  });

  it('exits with 2 when called wrongly', async () => {
    expect((await rookery([])).code).toBe(2);
    expect((await rookery(['nonsense'])).code).toBe(2);
    expect((await rookery(['config', 'check', '--nonsense', 'x'])).code).toBe(2);
    expect((await rookery(['config', 'generate', '--port', 'x'])).code).toBe(2);
  });
});

describe('rookery config', () => {
  it('generates a file that loads, is private, and is not overwritten', async () => {
    const file = join(folder, 'etc', 'rookery', 'generated.yaml');
    expect((await rookery(['config', 'generate', '-n', 'example.org', '-o', file])).code).toBe(0);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const config = loadConfig([file], { env: {} });
    expect(config.serverName).toBe('example.org');
    expect(config.warnings.filter(({ message }) => !message.includes('has no effect'))).toEqual([]);
    expect(config.get('report_stats')).toBe(false);
    expect(config.get('listeners')).toMatchObject([
      { port: 8008, bind_addresses: ['127.0.0.1'], resources: [{ names: ['client', 'federation'] }] },
    ]);
    expect(config.get('database.args')['database']).toBe(join(dirname(file), 'data', 'homeserver.db'));
    expect(config.get('registration_shared_secret')).toMatch(/^[A-Za-z]{50}$/);
    expect(config.get('macaroon_secret_key')).not.toBe(config.get('registration_shared_secret'));
    const again = await rookery(['config', 'generate', '-n', 'other.org', '-o', file]);
    expect([again.code, again.notes]).toEqual([1, `${file} exists; --force replaces it`]);
    expect(loadConfig([file], { env: {} }).serverName).toBe('example.org');
    const checked = await rookery(['config', 'check', file]);
    expect(checked).toMatchObject({ code: 0, out: 'Nothing is wrong.' });
    expect(await rookery(['config', 'check', '-c', file])).toMatchObject({ code: 0, out: 'Nothing is wrong.' });
  });

  it('says how modules are checked, where there are any', async () => {
    const file = join(folder, 'with-modules.yaml');
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\nmodules: [{module: ./nowhere}]\n');
    const { code, out } = await rookery(['config', 'check', file]);
    expect([code, out]).toEqual([
      0,
      `Nothing is wrong.\nModules are not loaded for this: rookery module check -c ${file}`,
    ]);
  });

  it('checks homeserver.yaml here where no file is named', async () => {
    const { code, out } = await inEmptyFolder('config', 'check');
    expect(code).toBe(1);
    expect(out).toContain('error: homeserver.yaml: cannot read: there is no such file or folder');
  });

  it('asks for the server name, and refuses what is none', async () => {
    const { code, out, asked } = await rookery(['config', 'generate'], ['chat.example.org']);
    expect([code, asked.length]).toEqual([0, 1]);
    expect(out).toContain('server_name: chat.example.org');
    const wrong = await rookery(['config', 'generate', '-n', 'not a name']);
    expect([wrong.code, wrong.out]).toEqual([1, '']);
    expect(wrong.notes).toContain('server_name: expected a server name');
  });

  it('checks files: 0 with warnings, 1 with errors, 1 with warnings when strict', async () => {
    const file = join(folder, 'checked.yaml');
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\nenable_serach: true\n');
    const warned = await rookery(['config', 'check', file]);
    expect(warned.code).toBe(0);
    expect(warned.out).toContain(
      `warning: ${file}:3: enable_serach: unknown setting, ignored; did you mean enable_search?`,
    );
    expect(warned.out).toContain('no errors, 1 warning.');
    expect((await rookery(['config', 'check', '--strict', file])).code).toBe(1);
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\nlog_file: x\n');
    const failed = await rookery(['config', 'check', file]);
    expect(failed.code).toBe(1);
    expect(failed.out).toContain(`error: ${file}:3: log_file: removed in 1.8.`);
    writeFileSync(join(folder, 'log.yaml'), 'version: 1\nroot: {level: LOUD}\n');
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\nlog_config: log.yaml\n');
    const log = await rookery(['config', 'check', file]);
    expect(log.out).toContain(`error: ${join(folder, 'log.yaml')}:2: root.level: expected one of DEBUG`);
    expect(log.code).toBe(1);
  });

  it('says which process does what, where there may be several', async () => {
    const file = join(folder, 'processes.yaml');
    const database = 'database: {name: psycopg2, args: {host: localhost}}';
    const common = `server_name: example.org\nreport_stats: false\n${database}\nredis: {enabled: true}\n`;
    const linesOf = async (more: string): Promise<string[]> => {
      writeFileSync(file, common + more);
      const { out } = await rookery(['config', 'check', file]);
      return out.split('\n');
    };
    expect(await linesOf('')).toContain('Nothing is left without anybody as long as one process runs.');
    const known = await linesOf(
      [
        'instance_map: {main: {host: localhost, port: 9093}, sender1: {host: localhost, port: 9094}}',
        'federation_sender_instances: [sender1]',
        'pusher_instances: [pusher1]',
        'notify_appservices_from_worker: pusher1',
        'stream_writers: {typing: [sender1], receipts: [sender1], to_device: [sender1], push_rules: [sender1]}',
      ].join('\n'),
    );
    const reads =
      'answers what only reads, writes account data, receipts, messages to devices, lists and keys of devices, push rules, ' +
      'subscriptions to threads, what is withheld of media, passes on the rest';
    expect(known).toContain(`  sender1: ${reads}, sends to other servers (named for writing typing: main does that)`);
    expect(known.find((line) => line.startsWith('  main: '))).toContain(
      'sends to other servers while none of these runs: sender1; pushes to devices while none of these runs: pusher1; ' +
        'sends to application services while none of these runs: pusher1',
    );
    expect(known).toContain(`  pusher1: ${reads}, pushes to devices, sends to application services`);
    const old = await linesOf('instance_map: {main: {host: localhost, port: 9093}}\nnotify_appservices: false');
    expect(old).toContain(`  synapse.app.appservice: ${reads}, sends to application services`);
    const sender = 'worker_app: synapse.app.federation_sender\nworker_name: sender9\nsend_federation: false';
    const alone = await linesOf(`instance_map: {main: {host: localhost, port: 9093}}\n${sender}`);
    expect(alone).toContain(`  sender9: ${reads}, sends to other servers`);
    expect(known.join('\n')).toContain('While main is away nobody writes, ');
    const restricted = await linesOf(
      [
        'instance_map: {main: {host: localhost, port: 9093}, out1: {host: localhost, port: 9094}}',
        'worker_replication_secret: shared\noutbound_federation_restricted_to: [out1, master]',
        'federation_sender_instances: [sender1]',
      ].join('\n'),
    );
    expect(restricted).toContain('Only these speak to other servers, all others by way of them: out1, main');
    // A sender goes by way of them: nothing is wrong with that.
    expect(restricted.join('\n')).not.toMatch(/has no effect|^(?:warning|error)/m);
    expect(known.join('\n')).not.toContain('speak to other servers');
    expect(await linesOf('outbound_federation_restricted_to: []\nworker_replication_secret: shared')).toContain(
      'Nobody speaks to other servers: outbound_federation_restricted_to is empty. Leave it out, or name some.',
    );
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\n');
    expect((await rookery(['config', 'check', file])).out).not.toContain('Processes');
  });

  it('finds what would end the start only later, and leaves nothing behind', async () => {
    const inside = join(folder, 'later');
    mkdirSync(join(inside, 'templates'), { recursive: true });
    const file = join(inside, 'homeserver.yaml');
    writeFileSync(join(inside, 'templates', 'registration.html'), 'fine\n{% if %}\n');
    writeFileSync(join(inside, 'no.key'), 'this is no key\n');
    const check = async (lines: string): Promise<string> => {
      writeFileSync(file, `server_name: example.org\nreport_stats: false\n${lines}\n`);
      const { code, out } = await rookery(['config', 'check', file]);
      expect(code).toBe(out.includes('Nothing is wrong.') ? 0 : 1);
      expect(out).not.toMatch(/^\s+at .*\(/m);
      return out;
    };
    expect(await check('')).toContain('Nothing is wrong.');
    expect(await check('templates: {custom_template_directory: templates}')).toMatch(
      /^error: .*homeserver\.yaml:3: templates\.custom_template_directory: .*templates: syntax error: .* \(in registration\.html:2\)$/m,
    );
    expect(await check('templates: {custom_template_directory: nowhere}')).toMatch(
      /^error: .*homeserver\.yaml:3: templates\.custom_template_directory: Cannot read templates in .*nowhere: there is no such folder$/m,
    );
    expect(await check('email: {notif_from: nobody}')).toMatch(
      /^error: .*homeserver\.yaml:3: email\.notif_from: holds no/m,
    );
    expect(await check('signing_key_path: no.key')).toMatch(
      /^error: .*homeserver\.yaml:3: signing_key_path: .*no\.key: /m,
    );
    expect(await check('database: {name: psycopg2, args: {hosst: x}}')).toMatch(
      /^error: .*homeserver\.yaml:3: database\.args: database\.args\.hosst is not/m,
    );
    expect(
      await check(
        'tls_certificate_path: no.key\ntls_private_key_path: no.key\nlisteners: [{port: 1, type: http, tls: true}]',
      ),
    ).toMatch(/^error: .*homeserver\.yaml:3: tls_certificate_path: The TLS certificate and key cannot be used/m);
    expect(await check('federation_custom_ca_list: [nowhere]')).toMatch(
      /^error: .*:3: federation_custom_ca_list\[0\]: /m,
    );
    const noFolder = 'a part of the path is not a folder';
    expect(await check('database: {name: sqlite3, args: {database: no.key/homeserver.db}}')).toMatch(
      /^error: .*homeserver\.yaml:3: database\.args: cannot write the database .*homeserver\.db: a part of the path is not a folder$/m,
    );
    expect(await check('pid_file: templates')).toMatch(
      /^error: .*homeserver\.yaml:3: pid_file: cannot write the process id .*templates: it is a folder$/m,
    );
    writeFileSync(
      join(inside, 'log.yaml'),
      `handlers: {file: {class: logging.FileHandler, filename: ${join(inside, 'no.key', 'log')}}}\nroot: {handlers: [file]}\n`,
    );
    const listeners = (one: string): string => `listeners:\n- {port: 8008, type: http}\n- ${one}`;
    const several = `log_config: log.yaml\npid_file: no.key/pid\n${listeners('{port: 1, type: http, bind_addresses: [127.0.0.1, 192.0.2.1]}')}`;
    const out = await check(several);
    expect(out).toContain(
      `homeserver.yaml:3: log_config: cannot write the log ${join(inside, 'no.key', 'log')}: ${noFolder}`,
    );
    expect(out).toContain(
      `homeserver.yaml:4: pid_file: cannot write the process id ${join(inside, 'no.key', 'pid')}: ${noFolder}`,
    );
    expect(out).toContain(
      'homeserver.yaml:7: listeners[1].bind_addresses: cannot listen on 192.0.2.1: this machine has no such address',
    );
    expect(await check(listeners('{path: no.key, type: http}'))).toMatch(
      /^error: .*homeserver\.yaml:5: listeners\[1\]\.path: cannot listen on .*no\.key: a file of that name is in the way$/m,
    );
    expect(await check(listeners('{path: nowhere/socket, type: http}'))).toContain('no such file or folder');
    expect(await check('redis: {enabled: true, use_tls: true, ca_file: nowhere}')).toMatch(
      /^error: .*homeserver\.yaml:3: redis\.ca_file: Cannot read .*nowhere/m,
    );
    expect(await check('redis: {enabled: true, use_tls: true, ca_file: no.key}')).toMatch(
      /^error: .*homeserver\.yaml:3: redis\.ca_file: .*no\.key/m,
    );
    expect(await check(listeners('{port: 1, type: manhole, bind_addresses: [0.0.0.0]}'))).toMatch(
      /^error: .*homeserver\.yaml:5: listeners\[1\]\.bind_addresses: a manhole listens on loopback/m,
    );
    expect(readdirSync(inside).sort()).toEqual(['homeserver.yaml', 'log.yaml', 'no.key', 'templates']);
  });
});

describe('rookery hash-password', () => {
  it('hashes as the server does, with its pepper', async () => {
    const file = join(folder, 'pepper.yaml');
    writeFileSync(
      file,
      'server_name: example.org\nreport_stats: false\nbcrypt_rounds: 4\npassword_config: {pepper: salty}\n',
    );
    const { code, out, asked } = await rookery(['hash-password', '-c', file], ['sesame', 'sesame']);
    expect([code, asked.length]).toEqual([0, 2]);
    expect(out).toMatch(/^\$2[aby]\$04\$/);
    const { verify } = await import('@node-rs/bcrypt');
    expect(await verify('sesamesalty', out)).toBe(true);
    expect(await verify('sesame', out)).toBe(false);
  });

  it('gives up after three answers that differ', async () => {
    const { code, notes } = await rookery(['hash-password', '-r', '4'], ['a', 'b', 'c', 'd', '', 'x']);
    expect(code).toBe(2);
    expect(notes).toContain('No password given');
    expect((await rookery(['hash-password', '-r', '99', '-p', 'x'])).code).toBe(2);
  });
});

describe('rookery register-user', () => {
  const secret = 'the shared secret';
  let server: Server;
  let url: string;
  let requests: Record<string, unknown>[];
  let answer: { status: number; body: unknown };

  beforeEach(async () => {
    requests = [];
    answer = { status: 200, body: { user_id: '@alice:example.org' } };
    server = createServer((request, response) => {
      if (request.url !== '/_synapse/admin/v1/register') {
        response.writeHead(404).end('nothing here');
        return;
      }
      response.setHeader('content-type', 'application/json');
      if (request.method === 'GET') {
        response.end(JSON.stringify({ nonce: 'abcd' }));
        return;
      }
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        requests.push(JSON.parse(body) as Record<string, unknown>);
        response.writeHead(answer.status).end(JSON.stringify(answer.body));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it('computes the proof over the fields with NUL between them', () => {
    const request = { nonce: 'n', username: 'u', password: 'p', admin: true };
    const expected = (text: string): string => createHmac('sha1', secret).update(text).digest('hex');
    expect(registrationMac(secret, request)).toBe(expected('n\u0000u\u0000p\u0000admin'));
    expect(registrationMac(secret, { ...request, admin: false, userType: 'bot' })).toBe(
      expected('n\u0000u\u0000p\u0000notadmin\u0000bot'),
    );
  });

  it('registers with what is given', async () => {
    const { code, out, asked } = await rookery([
      'register-user',
      '-u',
      'alice',
      '-p',
      'pässword',
      '--admin',
      '-t',
      'bot',
      '-k',
      secret,
      url,
    ]);
    expect([code, out, asked]).toEqual([0, 'Made @alice:example.org, a server administrator.', []]);
    expect(requests).toEqual([
      {
        nonce: 'abcd',
        username: 'alice',
        password: 'pässword',
        admin: true,
        user_type: 'bot',
        mac: createHmac('sha1', secret).update('abcd\u0000alice\u0000pässword\u0000admin\u0000bot').digest('hex'),
        inhibit_login: true,
      },
    ]);
  });

  it('asks for the rest, and takes secret, address and prefix from the settings', async () => {
    const file = join(folder, 'settings.yaml');
    writeFileSync(
      file,
      `server_name: example.org\nreport_stats: false\nregistration_shared_secret: ${secret}\nlisteners: [{port: ${new URL(url).port}, bind_addresses: [127.0.0.1], type: http, resources: [{names: [client]}]}]\n`,
    );
    const { code, asked } = await rookery(['register-user', '-c', file], ['bob', 'pw', 'pw', '']);
    expect(code).toBe(0);
    expect(asked).toHaveLength(4);
    expect(requests).toMatchObject([{ username: 'bob', password: 'pw', admin: false }]);
    const second = await rookery(['register-user', '-c', file, url, '-u', 'carol', '--no-admin'], ['pw', 'pw']);
    expect([second.code, second.asked.length]).toEqual([0, 2]);
    writeFileSync(file, readFileSync(file, 'utf8') + 'service_prefix: other\n');
    const wrongPrefix = await rookery(['register-user', '-c', file, '-u', 'x', '-p', 'x', '--admin']);
    expect([wrongPrefix.code, wrongPrefix.notes]).toEqual([
      1,
      `${url}/other/admin/v1/register answered 404 without JSON: is that a homeserver?`,
    ]);
  });

  it('finds a server that listens at a unix socket alone, or speaks nothing but TLS', async () => {
    const args = ['-u', 'a', '-p', 'b', '--no-admin'];
    const settings = (name: string, listener: string): string => {
      const file = join(folder, name);
      const text = `server_name: example.org\nreport_stats: false\nregistration_shared_secret: ${secret}\n`;
      writeFileSync(file, `${text}listeners: [{${listener}, type: http, resources: [{names: [client]}]}]\n`);
      return file;
    };
    const socket = join(folder, 'server.sock');
    const other = createServer((...both) => void server.emit('request', ...both)).listen(socket);
    await once(other, 'listening');
    const bySocket = settings('socket.yaml', `path: ${socket}`);
    expect(await rookery(['register-user', '-c', bySocket, ...args])).toMatchObject({ code: 0 });
    other.close();
    await once(other, 'close');
    expect(await rookery(['register-user', '-c', bySocket, ...args])).toMatchObject({
      code: 1,
      notes: `Cannot reach ${socket} (/_synapse/admin/v1/register): ENOENT. Is the server running?`,
    });
    const certificate = makeTestAuthority().issue(['matrix.example.org']);
    writeFileSync(join(folder, 'tls.crt'), certificate.cert);
    writeFileSync(join(folder, 'tls.key'), certificate.key);
    const encrypted = createTlsServer(certificate, (...both) => void server.emit('request', ...both));
    await once(encrypted.listen(0, '127.0.0.1'), 'listening');
    const { port } = encrypted.address() as AddressInfo;
    const byTls = settings('tls.yaml', `port: ${port}, bind_addresses: [127.0.0.1], tls: true`);
    const files = `tls_certificate_path: ${folder}/tls.crt\ntls_private_key_path: ${folder}/tls.key\n`;
    writeFileSync(byTls, readFileSync(byTls, 'utf8') + files);
    expect(await rookery(['register-user', '-c', byTls, ...args])).toMatchObject({ code: 0 });
    // An address that somebody gives may lie anywhere.
    const given = await rookery(['register-user', '-c', byTls, ...args, `https://127.0.0.1:${port}`]);
    expect([given.code, given.notes]).toEqual([
      1,
      expect.stringMatching(/^Cannot reach https:.*(?:CERT|ISSUER|VERIFY)/),
    ]);
    expect(requests.length).toBe(2);
    encrypted.close();
  });

  it('reads a password file', async () => {
    const file = join(folder, 'password');
    writeFileSync(file, 'from file\nrest');
    await rookery(['register-user', '-u', 'a', '--password-file', file, '--no-admin', '-k', secret, url]);
    expect(requests).toMatchObject([{ password: 'from file' }]);
  });

  it('says why the server refused, in one line', async () => {
    const args = ['register-user', '-u', 'a', '-p', 'b', '--no-admin', '-k', secret, url];
    answer = { status: 403, body: { errcode: 'M_UNKNOWN', error: 'HMAC incorrect\u001b[31m' } };
    const wrong = await rookery(args);
    expect([wrong.code, wrong.notes]).toEqual([
      1,
      'The server refused: HMAC incorrect [31m (is this the registration_shared_secret it runs with?)',
    ]);
    answer = { status: 400, body: { errcode: 'M_USER_IN_USE', error: 'User ID already taken.' } };
    expect(await rookery(args)).toMatchObject({ code: 1, notes: 'The server refused: User ID already taken.' });
    expect(await rookery([...args, '--exists-ok'])).toMatchObject({ code: 0, out: 'The account exists already.' });
  });

  it('asks nothing when the server is not there', async () => {
    const { code, notes, asked } = await rookery(['register-user', '-k', secret, 'http://127.0.0.1:1']);
    expect([code, asked]).toEqual([1, []]);
    expect(notes).toMatch(
      /^Cannot reach http:\/\/127\.0\.0\.1:1\/_synapse\/admin\/v1\/register: .+\. Is the server running\?$/,
    );
  });

  it('needs one way to the secret', async () => {
    expect(await inEmptyFolder('register-user', '-u', 'a')).toMatchObject({
      code: 2,
      notes: expect.stringContaining('--config'),
    });
    const file = join(folder, 'nosecret.yaml');
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\n');
    expect(await rookery(['register-user', '-c', file])).toMatchObject({
      code: 2,
      notes: expect.stringContaining('registration_shared_secret is not set'),
    });
    expect((await rookery(['register-user', '-c', file, '-k', 'x'])).code).toBe(2);
    expect(await rookery(['register-user', '-k', 'x', 'ftp://x'])).toMatchObject({
      code: 2,
      notes: 'ftp://x is not an http:// or https:// address',
    });
  });
});
