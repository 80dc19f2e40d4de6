import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Database } from '@rookery/database';
import { canonicalJson, SigningKey, VerifyKey } from '@rookery/events';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { ThreepidService } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import { createRoom, join, ok, say } from '../rooms/rooms-client.js';
import { certificate, certificateKey } from './fixtures/certificate.js';
import { asJson, type Json, startWebServer, withPassword } from './support.js';

const base = '/_matrix/identity/v2';
const seed = new Uint8Array(32).fill(4);
const pepper = 'matrixrocks';
const hashOf = (address: string): string =>
  createHash('sha256').update(`${address} email ${pepper}`).digest('base64url');

/** An identity server with TLS: users bind by their tokens there, homeservers unbind by their signatures. */
class IdentityServer {
  /** Addresses that were proved, by session. */
  readonly proved = new Map<string, { readonly secret: string; readonly address: string }>();
  /** Users by address. */
  readonly bound = new Map<string, string>();
  readonly requests: { readonly path: string; readonly body: Json; readonly authorization: string }[] = [];
  /** Answers in place of the usual ones. */
  answer: { readonly status: number; readonly body: unknown } | undefined;
  /** How long it takes to answer somebody who binds. */
  pause: Promise<void> | undefined;
  /** The key of the only homeserver it trusts. */
  homeserver: VerifyKey | undefined;
  readonly #key = SigningKey.fromSeed('0', new Uint8Array(32).fill(9));
  readonly #server: Server;

  constructor() {
    this.#server = createServer({ cert: certificate, key: certificateKey }, (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const body = (text === '' ? {} : JSON.parse(text)) as Json;
        const { url: path = '', headers } = request;
        this.requests.push({ path, body, authorization: headers.authorization ?? '' });
        const { status, body: answer } = this.answer ?? this.#answer(path, body, headers.authorization ?? '');
        const say = (): void => {
          response.writeHead(status, { 'content-type': 'application/json' });
          response.end(typeof answer === 'string' ? answer : JSON.stringify(answer));
        };
        if (this.pause !== undefined && path === `${base}/3pid/bind`) void this.pause.then(say);
        else say();
      });
    });
  }

  get name(): string {
    return `localhost:${(this.#server.address() as AddressInfo).port}`;
  }
  start(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }
  stop(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #answer(path: string, body: Json, authorization: string): { status: number; body: unknown } {
    if (path === `${base}/3pid/unbind`) return this.#unbind(path, body, authorization);
    if (authorization !== 'Bearer token-of-ann') return { status: 401, body: { errcode: 'M_UNAUTHORIZED', error: '' } };
    if (path === `${base}/hash_details`)
      return { status: 200, body: { lookup_pepper: pepper, algorithms: ['none', 'sha256'] } };
    if (path === `${base}/lookup`) {
      const asked = body['addresses'] as string[];
      const mappings = [...this.bound].map(([address, userId]) => [hashOf(address), userId] as const);
      return { status: 200, body: { mappings: Object.fromEntries(mappings.filter(([hash]) => asked.includes(hash))) } };
    }
    if (path !== `${base}/3pid/bind`) return { status: 404, body: { errcode: 'M_UNRECOGNIZED', error: path } };
    const { sid, client_secret: secret, mxid } = body as Record<string, string>;
    const proof = this.proved.get(sid ?? '');
    if (!proof || proof.secret !== secret)
      return { status: 404, body: { errcode: 'M_NO_VALID_SESSION', error: 'No such session' } };
    this.bound.set(proof.address, mxid ?? '');
    const statement = {
      medium: 'email',
      address: proof.address,
      mxid,
      ts: 1,
      not_before: 1,
      not_after: 4_582_425_849_161,
    };
    const signatures = { [this.name]: { [this.#key.keyId]: this.#key.sign(canonicalJson(statement)) } };
    return { status: 200, body: { ...statement, signatures } };
  }

  /** Checks the signature as a server does: over method, path, both servers and the whole body. */
  #unbind(uri: string, content: Json, authorization: string): { status: number; body: unknown } {
    const said = Object.fromEntries(
      [...authorization.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]),
    ) as Record<string, string>;
    const { mxid, threepid } = content as { mxid: string; threepid: { medium: string; address: string } };
    const signed = { method: 'POST', uri, origin: said['origin'], destination: this.name, content };
    const isSigned =
      authorization.startsWith('X-Matrix ') &&
      said['destination'] === this.name &&
      mxid.endsWith(`:${said['origin']}`) &&
      this.homeserver?.verify(canonicalJson(signed), said['sig'] ?? '') === true;
    if (!isSigned) return { status: 403, body: { errcode: 'M_FORBIDDEN', error: 'Invalid signature' } };
    if (this.bound.get(threepid.address) !== mxid) return { status: 404, body: { errcode: 'M_NOT_FOUND', error: '' } };
    this.bound.delete(threepid.address);
    return { status: 200, body: {} };
  }
}

describe.each(['sqlite', 'postgres'] as const)('identity servers (%s)', (kind) => {
  const trusted = getCACertificates('default');
  const identity = new IdentityServer();
  let homeserver: TestHomeserver;
  let ann: TestUser;

  beforeAll(async () => {
    setDefaultCACertificates([...trusted, certificate]);
    await identity.start();
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        ip_range_blacklist: [],
        rc_third_party_invite: { per_second: 1000, burst_count: 1000 },
        signing_key: `ed25519 own ${Buffer.from(seed).toString('base64').replace(/=+$/, '')}`,
      },
    });
    identity.homeserver = VerifyKey.parse(SigningKey.fromSeed('own', seed).publicKey);
    ann = await homeserver.registerUser('ann');
  });
  afterAll(async () => {
    setDefaultCACertificates(trusted);
    await homeserver?.stop();
    await identity.stop();
  });

  let sessions = 0;
  const bind = async (user: TestUser, address: string, more: Json = {}): Promise<Json> => {
    const sid = String((sessions += 1));
    identity.proved.set(sid, { secret: 'secret', address });
    const wish = { client_secret: 'secret', id_access_token: 'token-of-ann', id_server: identity.name, sid, ...more };
    return asJson(await user.request('POST', '/account/3pid/bind', wish));
  };
  const threepid = (address: string, more: Json = {}): Json => ({ medium: 'email', address, ...more });
  const unbind = async (user: TestUser, address: string, more: Json = {}): Promise<Json> =>
    asJson(await user.request('POST', '/account/3pid/unbind', threepid(address, more)));
  const done = { status: 200, id_server_unbind_result: 'success' };
  const notDone = { status: 200, id_server_unbind_result: 'no-support' };

  it.each([
    [403, 'M_UNKNOWN_TOKEN'],
    [400, 'M_MISSING_TOKEN'],
    [401, 'M_FORBIDDEN'],
    [403, 'M_USER_LOCKED'],
  ])('do not end a session here by what they refuse with (%i %s)', async (status, errcode) => {
    identity.answer = { status, body: { errcode, error: 'No', soft_logout: true } };
    try {
      expect(await bind(ann, 'refused@example.org')).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    } finally {
      identity.answer = undefined;
    }
  });

  it('are told of an address with the user’s token there, and found by it when somebody is invited', async () => {
    expect(await bind(ann, 'ann@example.org')).toEqual({ status: 200 });
    expect(identity.requests.at(-1)).toEqual({
      path: `${base}/3pid/bind`,
      body: { sid: expect.any(String), client_secret: 'secret', mxid: ann.userId },
      authorization: 'Bearer token-of-ann',
    });
    const bob = await homeserver.registerUser('bob');
    const { body } = await bob.request('POST', '/createRoom', {});
    const invite = { ...threepid('ann@example.org'), id_server: identity.name, id_access_token: 'token-of-ann' };
    expect((await bob.request('POST', `/rooms/${String(body['room_id'])}/invite`, invite)).status).toBe(200);
    expect(identity.requests.at(-1)).toMatchObject({
      path: `${base}/lookup`,
      body: { addresses: [hashOf('ann@example.org')], algorithm: 'sha256', pepper },
    });
    const invites = (await ann.request<{ rooms: { invite: Json } }>('GET', '/sync?timeout=0')).body.rooms.invite;
    expect(Object.keys(invites)).toEqual([body['room_id']]);
  });

  it('forget it when this server asks with its signature, which the user’s token is no part of', async () => {
    expect(await unbind(ann, 'Ann@Example.org')).toEqual(done);
    expect(identity.bound.has('ann@example.org')).toBe(false);
    expect(identity.requests.at(-1)).toEqual({
      path: `${base}/3pid/unbind`,
      body: { mxid: ann.userId, threepid: { medium: 'email', address: 'ann@example.org' } },
      authorization: expect.stringMatching(
        /^X-Matrix origin="rookery\.test",destination="localhost:\d+",key="ed25519:own",sig="[A-Za-z0-9+/]{86}"$/,
      ),
    });
    // Nothing is known of it any more: nobody is asked.
    const asked = identity.requests.length;
    expect(await unbind(ann, 'ann@example.org')).toEqual(notDone);
    expect(identity.requests).toHaveLength(asked);
  });

  it('are asked by name, too, and cannot be made to forget what is another’s', async () => {
    const carl = await homeserver.registerUser('carl');
    identity.bound.set('elsewhere@example.org', carl.userId);
    expect(await unbind(ann, 'elsewhere@example.org', { id_server: identity.name })).toEqual({
      status: 404,
      errcode: 'M_NOT_FOUND',
      error: expect.any(String),
    });
    expect(await unbind(carl, 'elsewhere@example.org', { id_server: identity.name })).toEqual(done);
    expect(await unbind(carl, 'elsewhere@example.org', { id_server: 'a server' })).toMatchObject({
      status: 400,
      errcode: 'M_INVALID_PARAM',
    });
  });

  it('forget what an account gives up, and all of an account that closes', async () => {
    const dora = await homeserver.registerUser('dora');
    const threepids = homeserver.server.service(ThreepidService);
    for (const address of ['d1@example.org', 'd2@example.org', 'd3@example.org']) {
      await threepids.add(dora.userId, 'email', address, 1, {});
      expect(await bind(dora, address)).toEqual({ status: 200 });
    }
    const remove = async (address: string): Promise<Json> =>
      asJson(await dora.request('POST', '/account/3pid/delete', threepid(address)));
    expect(await remove('d1@example.org')).toEqual(done);
    expect([...identity.bound.keys()]).toEqual(['d2@example.org', 'd3@example.org']);
    identity.answer = { status: 403, body: { errcode: 'M_FORBIDDEN', error: 'No servers here' } };
    expect(await remove('d2@example.org')).toEqual(notDone);
    expect((await threepids.list(dora.userId)).map(({ address }) => address)).toEqual(['d3@example.org']);
    identity.answer = undefined;
    const closed = await withPassword(dora, 'POST', '/account/deactivate', {}, 'password of dora');
    expect(asJson(closed)).toEqual(done);
    expect(identity.bound.size).toBe(0);
  });

  it('forget what they were told of an account that closed before they answered', async () => {
    const hal = await homeserver.registerUser('hal');
    const { promise, resolve } = Promise.withResolvers<void>();
    identity.pause = promise;
    try {
      const binding = bind(hal, 'hal@example.org');
      await eventually(() => identity.bound.has('hal@example.org'));
      const closed = await withPassword(hal, 'POST', '/account/deactivate', {}, 'password of hal');
      expect(asJson(closed)).toMatchObject({ status: 200 });
      resolve();
      expect(await binding).toMatchObject({ status: 403, errcode: 'M_USER_DEACTIVATED' });
    } finally {
      identity.pause = undefined;
    }
    expect(identity.bound.has('hal@example.org')).toBe(false);
  });

  it('forget at the end of an account what the client told them itself, where it names them', async () => {
    const closed = async (name: string, more: Json): Promise<Json> => {
      const user = await homeserver.registerUser(name);
      await homeserver.server.service(ThreepidService).add(user.userId, 'email', `${name}@example.org`, 1, {});
      identity.bound.set(`${name}@example.org`, user.userId);
      return asJson(await withPassword(user, 'POST', '/account/deactivate', more, `password of ${name}`));
    };
    expect(await closed('flo', { id_server: identity.name })).toEqual(done);
    expect(await closed('gil', { id_server: 'no server name' })).toEqual(notDone);
    expect([...identity.bound.keys()]).toEqual(['gil@example.org']);
    identity.bound.clear();
  });

  it('have their errors passed on, but end nobody’s session here', async () => {
    const answers: readonly (readonly [status: number, body: unknown, bind: Json, unbind: Json])[] = [
      [
        400,
        { errcode: 'M_SESSION_NOT_VALIDATED' },
        { status: 400, errcode: 'M_SESSION_NOT_VALIDATED' },
        { status: 400 },
      ],
      [
        403,
        { errcode: 'M_TERMS_NOT_SIGNED' },
        { status: 403, errcode: 'M_TERMS_NOT_SIGNED' },
        { status: 403, errcode: 'M_TERMS_NOT_SIGNED' },
      ],
      [
        401,
        { errcode: 'M_UNKNOWN_TOKEN' },
        { status: 403, errcode: 'M_FORBIDDEN' },
        { status: 403, errcode: 'M_FORBIDDEN' },
      ],
      [404, { errcode: 'M_UNRECOGNIZED' }, { status: 502 }, notDone],
      [404, 'Not found', { status: 502 }, notDone],
      [501, 'Not here', { status: 502 }, notDone],
      [500, { errcode: 'M_UNKNOWN' }, { status: 502 }, { status: 502 }],
      [400, { errcode: '<script>' }, { status: 502 }, notDone],
      [200, 'x'.repeat(70_000), { status: 502 }, { status: 502 }],
      [200, {}, { status: 502 }, done],
      [200, { medium: 'email', address: 'a@example.org', mxid: '@other:rookery.test' }, { status: 502 }, done],
      [200, { medium: 'email', address: 'a\r\nb', mxid: ann.userId }, { status: 502 }, done],
    ];
    for (const [status, body, onBind, onUnbind] of answers) {
      identity.answer = { status, body };
      const said = JSON.stringify(body).slice(0, 100);
      expect([status, said, await bind(ann, 'x@example.org')]).toMatchObject([status, said, onBind]);
      const asked = await unbind(ann, 'x@example.org', { id_server: identity.name });
      expect([status, said, asked]).toMatchObject([status, said, onUnbind]);
    }
    identity.answer = undefined;
    expect(await bind(ann, 'x@example.org', { id_access_token: 'wrong' })).toMatchObject({ status: 403 });
    expect(await bind(ann, 'x@example.org', { client_secret: 'wrong' })).toMatchObject({
      status: 404,
      errcode: 'M_NO_VALID_SESSION',
    });
    expect(await bind(ann, 'x@example.org', { id_access_token: 'a\r\nX-Evil: 1' })).toMatchObject({ status: 400 });
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
  });

  it('may be where other servers may be, though nothing else is reached there', async () => {
    const gateway = await startWebServer(() => ({ body: { rejected: [] } }));
    // Beside it the general list is what it is where nothing is said.
    const settings = { federation_ip_range_blacklist: ['10.0.0.0/8'] };
    const here = await createTestHomeserver({ database: kind, fetch: validatedFetch, settings });
    try {
      const [eve, fay] = [await here.registerUser('eve'), await here.registerUser('fay')];
      expect(await bind(eve, 'eve.near@example.org')).toMatchObject({ status: 200 });
      await ok(eve, 'POST', '/pushers/set', {
        ...{ kind: 'http', app_id: 'org.example.app', pushkey: 'key', app_display_name: 'App', lang: 'en' },
        device_display_name: 'Phone',
        data: { url: `${gateway.url}/_matrix/push/v1/notify` },
      });
      const roomId = await createRoom(eve, { preset: 'public_chat' });
      await join(fay, roomId);
      await say(fay, roomId, 'are you there?');
      const failing = 'SELECT 1 AS found FROM pushers WHERE failing_since IS NOT NULL';
      await eventually(async () => (await here.server.service(Database).get(failing)) !== undefined);
      expect(gateway.requests).toEqual([]);
    } finally {
      await here.stop();
      await gateway.stop();
    }
  });

  it('are not used where the settings forbid it', async () => {
    const settings = { ip_range_blacklist: [], enable_3pid_lookup: false };
    const strict = await createTestHomeserver({ database: kind, fetch: validatedFetch, settings });
    try {
      const eve = await strict.registerUser('eve');
      const asked = identity.requests.length;
      expect(await bind(eve, 'eve@example.org')).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
      expect(await unbind(eve, 'eve@example.org', { id_server: identity.name })).toEqual(notDone);
      expect(identity.requests).toHaveLength(asked);
    } finally {
      await strict.stop();
    }
  });
});
