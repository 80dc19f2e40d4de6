import { SigningKey, signJson } from '@rookery/events';
import { makeTestAuthority } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runProgram } from '../program.js';
import { delegateAt, type Names, wayTo } from './doctor/server-probe.js';

describe('the way to a server', () => {
  const delegates: Readonly<Record<string, string>> = {
    'delegated.test': 'matrix.test',
    'to-port.test': 'matrix.test:443',
    'to-address.test': '[2001:db8::1]',
    'to-srv.test': 'srv.test',
    'to-nonsense.test': 'https://matrix.test/',
    'to-nobody.test': '',
  };
  const records: Readonly<Record<string, readonly { name: string; port: number; priority: number }[]>> = {
    '_matrix-fed._tcp.srv.test': [
      { name: 'second.test', port: 2, priority: 20 },
      { name: 'first.test.', port: 1, priority: 10 },
    ],
    '_matrix-fed._tcp.away.test': [{ name: '.', port: 0, priority: 0 }],
    '_matrix._tcp.old.test': [{ name: 'old-target.test', port: 3, priority: 0 }],
  };
  const names: Names = {
    delegate: (host) => Promise.resolve(delegates[host]),
    srv: (name) => Promise.resolve(records[name] ?? []),
  };

  it.each([
    ['1.2.3.4', ['1.2.3.4:8448'], '1.2.3.4', '1.2.3.4'],
    ['1.2.3.4:5', ['1.2.3.4:5'], '1.2.3.4:5', '1.2.3.4'],
    ['[2001:db8::2]:6', ['2001:db8::2:6'], '[2001:db8::2]:6', '2001:db8::2'],
    ['named.test:7', ['named.test:7'], 'named.test:7', 'named.test'],
    ['delegated.test', ['matrix.test:8448'], 'matrix.test', 'matrix.test'],
    ['to-port.test', ['matrix.test:443'], 'matrix.test:443', 'matrix.test'],
    ['to-address.test', ['2001:db8::1:8448'], '[2001:db8::1]', '2001:db8::1'],
    ['to-srv.test', ['first.test:1', 'second.test:2'], 'srv.test', 'srv.test'],
    ['srv.test', ['first.test:1', 'second.test:2'], 'srv.test', 'srv.test'],
    ['old.test', ['old-target.test:3'], 'old.test', 'old.test'],
    ['plain.test', ['plain.test:8448'], 'plain.test', 'plain.test'],
    ['to-nonsense.test', ['to-nonsense.test:8448'], 'to-nonsense.test', 'to-nonsense.test'],
    ['to-nobody.test', ['to-nobody.test:8448'], 'to-nobody.test', 'to-nobody.test'],
    ['away.test', [], 'away.test', 'away.test'],
  ])('%s', async (name, routes, hostHeader, tlsName) => {
    const way = await wayTo(name, names);
    expect(way?.routes.map(({ host, port }) => `${host}:${port}`)).toEqual(routes);
    expect(way).toMatchObject({ hostHeader, tlsName });
  });

  it.each([
    ['to-nonsense.test', 'error', 'the document under to-nonsense.test names "https://matrix.test/"'],
    ['to-nobody.test', 'warning', 'the document under to-nobody.test has no m.server'],
    ['away.test', 'error', '_matrix-fed._tcp.away.test says that it is not reachable'],
  ])('of %s is not as it should be', async (name, level, text) => {
    const way = await wayTo(name, names);
    expect(way?.steps.filter((step) => step.level !== 'ok')).toMatchObject([{ level, text }]);
  });

  it('is not there for what is no name', async () => {
    expect(await wayTo('no name', names)).toBeUndefined();
    expect(await wayTo('named.test:0', names)).toBeUndefined();
  });
});

describe('rookery federation check', () => {
  const authority = makeTestAuthority();
  const key = SigningKey.fromSeed('own', new Uint8Array(32).fill(5));
  const other = SigningKey.fromSeed('own', new Uint8Array(32).fill(6));
  let folder: string;
  let server: Server;
  let name: string;
  let answer: () => unknown;
  /** Where paths lead that have no answer of their own. */
  const moved: Readonly<Record<string, string>> = { '/first': 'second', '/second': '/document', '/round': '/round' };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-check-'));
    await writeFile(join(folder, 'ca.pem'), authority.cert);
    server = createServer(authority.issue(['localhost']), ({ url = '' }, response) => {
      const location = moved[url];
      if (location !== undefined) response.writeHead(302, { location }).end();
      else response.end(JSON.stringify(answer()));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    name = `localhost:${(server.address() as AddressInfo).port}`;
  });
  afterAll(async () => {
    server.closeAllConnections();
    server.close();
    await rm(folder, { recursive: true, force: true });
  });

  const statement = (change: object = {}, signer = key): unknown =>
    signJson(
      {
        ...{ server_name: name, valid_until_ts: Date.now() + 86_400_000, old_verify_keys: {} },
        verify_keys: { [key.keyId]: { key: key.publicKey } },
        ...change,
      },
      name,
      signer,
    );

  async function check(...args: string[]): Promise<{ code: number; wrong: string[] }> {
    let out = '';
    const terminal = { out: (text: string) => void (out += text), note: () => {} };
    const code = await runProgram(['federation', 'check', '--json', ...args], terminal as never);
    const findings = JSON.parse(out) as { level: string; text: string }[];
    return { code, wrong: findings.filter(({ level }) => level === 'error').map(({ text }) => text) };
  }
  const trusted = (): string[] => ['--ca', join(folder, 'ca.pem'), name];

  it('finds nothing wrong with a server that is reached and signs', async () => {
    answer = () => statement();
    expect(await check(...trusted())).toEqual({ code: 0, wrong: [] });
  });

  it.each([
    ['another name', () => statement({ server_name: 'other.test' }), 'not as localhost'],
    ['keys out of date', () => statement({ valid_until_ts: 1 }), 'out of date'],
    ['no keys', () => statement({ verify_keys: {} }), 'no keys'],
    ['a key that has not signed', () => statement({}, other), 'has not signed'],
    ['something else', () => [], 'not as a homeserver'],
  ])('finds %s', async (_, given, text) => {
    answer = given;
    const { code, wrong } = await check(...trusted());
    expect(code).toBe(1);
    expect(wrong).toEqual([expect.stringContaining(text)]);
  });

  it('follows redirections to the document of a host, as servers do', async () => {
    answer = () => ({ 'm.server': 'matrix.test:443' });
    const of = (path: string): Promise<string | undefined> =>
      delegateAt(`https://${name}${path}`, { ca: authority.cert });
    expect(await of('/first')).toBe('matrix.test:443');
    expect(await of('/round')).toBeUndefined();
    answer = () => ({});
    expect(await of('/document')).toBe('');
  });

  it('names a file of authorities that cannot be read', async () => {
    const [missing, notes] = [join(folder, 'missing.pem'), [] as string[]];
    const terminal = { out: () => {}, note: (text: string) => void notes.push(text) };
    expect(await runProgram(['federation', 'check', '--ca', missing, name], terminal as never)).toBe(1);
    expect(notes).toEqual([`${missing} cannot be read: there is no such file or folder`]);
  });

  it('finds a certificate that nobody knows', async () => {
    answer = () => statement();
    const { code, wrong } = await check(name);
    expect(code).toBe(1);
    expect(wrong).toContainEqual(expect.stringMatching(/127\.0\.0\.1:\d+: .*(CERT|ISSUER|LEAF)/));
  });
});
