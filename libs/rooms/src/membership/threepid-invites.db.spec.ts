import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { databaseMigrations } from '@rookery/database';
import { type RoomEvent, signJson, SigningKey } from '@rookery/events';
import { IpGuard, type LimiterName, OutboundHttp, RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { type RemoteRoomGateway, RoomPorts } from '../ports.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import type { ThreepidInvite } from './identity-servers.js';
import { JoinService } from './join.service.js';
import { type SignedClaim, ThreepidClaims } from './threepid-claims.js';
import { ThreepidInvites } from './threepid-invites.js';

/** Made for this test; nothing else trusts it. */
const certificate = `-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUMle2JXk+T7rLb761IDee1eo7/CowCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDA4MjkwNFoYDzIxMjYxMDI3
MDgyOTA0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARqzkgFBsgsTkQuqu8+Qvz+dYd4q0SiXQPSnO1r2kHYK719Yl3K47TF
pO6VmZqpJOEyMWpMsquptsFBDkB33Spao28wbTAdBgNVHQ4EFgQUZpKoYYl3g/OG
Telb3+pZeARwFL8wHwYDVR0jBBgwFoAUZpKoYYl3g/OGTelb3+pZeARwFL8wDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAIPV+7C4v1IZeCc9IJ1iiBJIzJtNbkCJbBNGMy+Ax8X7AiEA
qxXAoHZqsByzYo6OTN6eV4DdTk+kBvZeqQUVDlI+kvs=
-----END CERTIFICATE-----
`;
const certificateKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCXNAb2D+pXT8oDFA
+rid0u5limQegYw0e5Rn3YzSvsqhRANCAARqzkgFBsgsTkQuqu8+Qvz+dYd4q0Si
XQPSnO1r2kHYK719Yl3K47TFpO6VmZqpJOEyMWpMsquptsFBDkB33Spa
-----END PRIVATE KEY-----
`;
const blocked = ['127.0.0.0/8', '::1/128'];
const ephemeral = SigningKey.fromSeed('0', new Uint8Array(32).fill(5));

/** An identity server on this machine. */
class IdentityServer {
  readonly bindings = new Map([['bob@example.net email', '@bob:example.org']]);
  readonly requests: { path: string; body: JsonObject; token: string | undefined }[] = [];
  readonly stored: JsonObject[] = [];
  pepper = 'pepper';
  algorithms = ['none', 'sha256'];
  /** Changes the pepper behind the asker's back, so many times. */
  rotations = 0;
  /** Addresses that nobody has are answered with null. */
  namesUnbound = false;
  keyIsValid = true;
  /** Answers in place of the usual ones. */
  readonly answers = new Map<string, readonly [status: number, body: string]>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer({ cert: certificate, key: certificateKey }, (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const url = new URL(request.url ?? '', 'https://localhost');
        const path = url.pathname.replace('/_matrix/identity/v2/', '');
        const text = Buffer.concat(chunks).toString();
        const body = (text === '' ? Object.fromEntries(url.searchParams) : JSON.parse(text)) as JsonObject;
        this.requests.push({ path, body, token: request.headers.authorization });
        const [status, answer] = this.answers.get(path) ?? this.#answer(path, body);
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(typeof answer === 'string' ? answer : JSON.stringify(answer));
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

  #answer(path: string, body: JsonObject): readonly [number, object] {
    if (path === 'hash_details') return [200, { lookup_pepper: this.pepper, algorithms: this.algorithms }];
    if (path === 'lookup') {
      if (this.rotations-- > 0) this.pepper += '!';
      if (body['pepper'] !== this.pepper) return [400, { errcode: 'M_INVALID_PEPPER', error: 'Old' }];
      const mappings: JsonObject = {};
      for (const [plain, userId] of this.bindings) {
        const hashed = createHash('sha256').update(`${plain} ${this.pepper}`).digest('base64url');
        const asked = body['algorithm'] === 'none' ? plain : hashed;
        if ((body['addresses'] as string[]).includes(asked)) mappings[asked] = userId;
      }
      if (this.namesUnbound) for (const asked of body['addresses'] as string[]) mappings[asked] ??= null;
      return [200, { mappings }];
    }
    if (path === 'pubkey/ephemeral/isvalid') return [200, { valid: this.keyIsValid }];
    this.stored.push(body);
    const key_validity_url = `https://${this.name}/_matrix/identity/v2/pubkey/ephemeral/isvalid`;
    const public_keys = [{ public_key: ephemeral.publicKey, key_validity_url }];
    return [200, { token: `token${this.stored.length}`, public_keys, display_name: 'd...@e...' }];
  }
}

/** Notes what is taken, and refuses when told to. */
class NotingLimiter extends RateLimiter {
  readonly taken: string[] = [];
  refuses = false;

  async take(limiter: LimiterName, key: string, requester?: Requester, cost = 1): Promise<void> {
    if (limiter !== 'rc_third_party_invite' || requester?.rateLimitExempt) return;
    this.taken.push(`${key} ${cost}`);
    if (this.refuses) throw MatrixError.limitExceeded(1000);
  }
  async mayTake(): Promise<boolean> {
    return true;
  }
}

eachDatabase('invites by address', (open) => {
  const limiter = new NotingLimiter();
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  const asked: string[] = [];
  let server: IdentityServer;
  let test: TestDatabase;
  let rooms: RoomsFixture;
  let http: OutboundHttp;
  let modules: ModuleDispatcher;

  beforeAll(async () => {
    server = new IdentityServer();
    await server.start();
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const registry = new ModuleRegistry(() => {});
    registry.addModule('test');
    const policy = { onError: 'deny' as const, timeLimitMs: undefined };
    registry.add('test', policy, 'spamChecker', {
      userMaySend3pidInvite: (inviter, medium, address, _roomId, context) => {
        asked.push(`send ${inviter} ${medium} ${address} ${context.duringRoomCreation}`);
        return address.startsWith('spam') ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM';
      },
    });
    registry.add('test', policy, 'thirdPartyRules', {
      checkThreepidCanBeInvited: async (medium, address, state) => {
        const create = await state.get('m.room.create');
        asked.push(`can ${medium} ${address} ${create?.type}`);
        return !address.startsWith('never');
      },
    });
    modules = new ModuleDispatcher();
    modules.install(registry.seal());
    http = new OutboundHttp({ guard: new IpGuard(blocked, ['127.0.0.1']), userAgent: 'test', ca: [certificate] });
    const email = { invite_client_location: 'https://app.example.org/', notif_from: 'server@example.org' };
    rooms = await buildRooms({ database: test.database, clock, http, modules, limiter, settings: { email } });
  });
  afterAll(async () => {
    await rooms.close();
    await http.close();
    await server.stop();
  });
  beforeEach(() => {
    server.requests.length = 0;
    server.answers.clear();
    asked.length = 0;
  });

  const create = async (more: object = {}): Promise<string> =>
    (await rooms.get(RoomCreation).create(alice, { preset: 'private_chat', ...more })).roomId;
  const inviteOf = (address: string, more: Partial<ThreepidInvite> = {}): ThreepidInvite => ({
    medium: 'email',
    address,
    idServer: server.name,
    idAccessToken: 'secret',
    ...more,
  });
  const invite = (roomId: string, address: string, more: Partial<ThreepidInvite> = {}): Promise<void> =>
    rooms.get(ThreepidInvites).invite(alice, roomId, inviteOf(address, more));
  const offers = async (roomId: string): Promise<JsonObject[]> =>
    (await rooms.get(RoomStateReader).current(roomId, { types: [['m.room.third_party_invite']] })).map(({ event }) => ({
      token: event.stateKey!,
      ...event.content,
    }));
  const membershipOf = async (userId: string, roomId: string): Promise<string | undefined> =>
    (await rooms.get(MembershipReader).inRoom(userId, roomId))?.membership;

  it('invite the user behind an address, which leaves the server hashed', async () => {
    const roomId = await create();
    await invite(roomId, 'bob@example.net');
    expect(await membershipOf('@bob:example.org', roomId)).toBe('invite');
    expect(await offers(roomId)).toEqual([]);
    expect(server.requests.map(({ path }) => path)).toEqual(['hash_details', 'lookup']);
    expect(server.requests.every(({ token }) => token === 'Bearer secret')).toBe(true);
    expect(JSON.stringify(server.requests)).not.toContain('bob@example.net');
    expect(asked).toEqual(['can email bob@example.net m.room.create']);
  });

  it('are for the address as it is stored, however it is written', async () => {
    const roomId = await create();
    await invite(roomId, 'Bob@Example.NET');
    expect(await membershipOf('@bob:example.org', roomId)).toBe('invite');
    await invite(roomId, '+44 (7700) 900-123', { medium: 'msisdn' });
    expect(server.stored.at(-1)).toMatchObject({ medium: 'msisdn', address: '447700900123' });
    await expect(invite(roomId, 'Never@example.net')).rejects.toMatchObject({ status: 403 });
    expect(asked).toEqual([
      'can email bob@example.net m.room.create',
      'can msisdn 447700900123 m.room.create',
      'send @alice:example.org msisdn 447700900123 false',
      'can email never@example.net m.room.create',
    ]);
    asked.length = 0;
    const entry = { medium: 'email', address: 'DORA@example.net', id_server: server.name, id_access_token: 'secret' };
    await create({ invite_3pid: [entry] });
    expect(server.stored.at(-1)).toMatchObject({ address: 'dora@example.net' });
    expect(asked.at(-1)).toBe('send @alice:example.org email dora@example.net true');
  });

  it('leave an invite with the identity server for an address that nobody has', async () => {
    const roomId = await create({ name: 'Den', topic: 'x' });
    await invite(roomId, 'dora@example.net');
    const [offer] = await offers(roomId);
    const key = ephemeral.publicKey;
    const url = `https://${server.name}/_matrix/identity/v2/pubkey/ephemeral/isvalid`;
    expect(offer).toEqual({
      token: `token${server.stored.length}`,
      display_name: 'd...@e...',
      public_key: key,
      key_validity_url: url,
      public_keys: [{ public_key: key, key_validity_url: url }],
    });
    expect(server.stored.at(-1)).toMatchObject({
      medium: 'email',
      address: 'dora@example.net',
      room_id: roomId,
      sender: alice.userId,
      room_name: 'Den',
      room_join_rules: 'invite',
      'org.matrix.web_client_location': 'https://app.example.org/',
    });
    expect(asked.at(-1)).toBe('send @alice:example.org email dora@example.net false');
    server.namesUnbound = true;
    const another = await create({});
    await invite(another, 'dora@example.net');
    expect(await offers(another)).toHaveLength(1);
    server.namesUnbound = false;
  });

  it('come true when the identity server vouches for somebody, while its key is valid', async () => {
    const roomId = await create();
    await invite(roomId, 'dora@example.net');
    const [offer] = await offers(roomId);
    const dora = '@dora:example.org';
    const signed = signJson({ mxid: dora, token: offer!['token']! }, server.name, ephemeral) as unknown as JsonObject;
    const exchange = (given = signed, target = dora) =>
      rooms.get(ThreepidInvites).exchangeInvite(roomId, alice.userId, target, given);
    server.keyIsValid = false;
    await expect(exchange()).rejects.toMatchObject({ status: 403 });
    server.keyIsValid = true;
    await expect(exchange({ ...signed, token: 'other' })).rejects.toMatchObject({ status: 403 });
    await expect(exchange({ ...signed, token: 'a\0b' })).rejects.toMatchObject({ status: 400 });
    const forged = signJson(
      { mxid: dora, token: offer!['token']! },
      server.name,
      SigningKey.fromSeed('0', new Uint8Array(32)),
    );
    await expect(exchange(forged as unknown as JsonObject)).rejects.toMatchObject({ status: 403 });
    await expect(exchange(signed, '@eve:example.org')).rejects.toMatchObject({ status: 403 });
    expect(await membershipOf(dora, roomId)).toBeUndefined();
    await exchange();
    expect(await membershipOf(dora, roomId)).toBe('invite');
    await rooms.get(JoinService).join(requesterOf('dora'), roomId);
    // The identity server says it once more, or another address of theirs is claimed.
    await exchange();
    expect(await membershipOf(dora, roomId)).toBe('join');
  });

  it('have few identity servers asked, and each once, whatever whoever left them has named', async () => {
    const roomId = await create();
    await invite(roomId, 'dora@example.net');
    const [{ token, ...offer }] = (await offers(roomId)) as [JsonObject];
    const [listed] = offer['public_keys'] as [JsonObject];
    const dora = '@dora:example.org';
    const signed = signJson({ mxid: dora, token: token! }, server.name, ephemeral) as unknown as JsonObject;
    const askedWith = async (public_keys: readonly JsonObject[]): Promise<number> => {
      const content = { ...offer, public_keys: [...public_keys] };
      const { userId: sender } = alice;

      await rooms
        .get(EventPersister)
        .send({ roomId, type: 'm.room.third_party_invite', stateKey: String(token), sender, content });
      server.requests.length = 0;
      server.keyIsValid = false;
      const exchange = rooms.get(ThreepidInvites).exchangeInvite(roomId, sender, dora, signed);
      await expect(exchange).rejects.toMatchObject({ status: 403 });
      server.keyIsValid = true;
      return server.requests.length;
    };
    expect(await askedWith(Array.from({ length: 10 }, () => listed))).toBe(1);
    const url = String(listed['key_validity_url']);
    const many = Array.from({ length: 20 }, (_, n) => ({ ...listed, key_validity_url: `${url}?n=${n}` }));
    expect(await askedWith(many)).toBe(3);
    await rooms.get(ThreepidInvites).exchangeInvite(roomId, alice.userId, dora, signed);
    expect(await membershipOf(dora, roomId)).toBe('invite');
  });

  it('go to the server of whoever claims them, once more where it asks again', async () => {
    const shown: string[] = [];
    const gateway = { invite: async (event: RoomEvent) => (shown.push(event.eventId), event) };
    rooms.get(RoomPorts).remoteRooms.replace({ membership: gateway } as unknown as RemoteRoomGateway);
    const roomId = await create();
    await invite(roomId, 'dora@example.net');
    const [offer] = await offers(roomId);
    const far = '@dora:elsewhere.example';
    const signed = signJson({ mxid: far, token: offer!['token']! }, server.name, ephemeral) as unknown as JsonObject;
    for (let i = 0; i < 2; i++) await rooms.get(ThreepidInvites).exchangeInvite(roomId, alice.userId, far, signed);
    // It may have lost the first one, or its user has turned it down there.
    expect(new Set(shown).size).toBe(2);
    expect(await rooms.get(MembershipReader).currentOf(roomId, far)).toBe('invite');
    rooms.get(RoomPorts).remoteRooms.replace(undefined);
  });

  it('let in who shows with the join that one is theirs', async () => {
    const roomId = await create();
    await invite(roomId, 'dora@example.net');
    const [offer] = await offers(roomId);
    const dora = requesterOf('dora');
    const said = { sender: alice.userId, mxid: dora.userId, token: offer!['token']! };
    const signed = signJson(said, server.name, ephemeral) as unknown as SignedClaim;
    const claim = (given: SignedClaim = signed, who = dora) => rooms.get(ThreepidClaims).claim(who, roomId, given);
    await expect(claim(signed, requesterOf('eve'))).rejects.toMatchObject({ status: 403 });
    await expect(claim({ ...signed, sender: '@bob:example.org' })).rejects.toMatchObject({ status: 403 });
    // Only the server whose user invited can invite in their name.
    const asked: unknown[] = [];
    const claimInvite = async (...given: unknown[]): Promise<void> => void asked.push(given);
    const elsewhere = { ...signed, sender: '@alice:elsewhere.example' };
    await claim(elsewhere);
    rooms.get(RoomPorts).remoteRooms.replace({ membership: { claimInvite } } as unknown as RemoteRoomGateway);
    await claim(elsewhere);
    rooms.get(RoomPorts).remoteRooms.replace(undefined);
    expect(asked).toEqual([[roomId, elsewhere.sender, dora.userId, elsewhere]]);
    expect(await membershipOf(dora.userId, roomId)).toBeUndefined();
    // The pace of those who invite is not that of the invited.
    limiter.refuses = true;
    await claim();
    limiter.refuses = false;
    expect(await membershipOf(dora.userId, roomId)).toBe('invite');
    await claim();
    await rooms.get(JoinService).join(dora, roomId);
    expect(await membershipOf(dora.userId, roomId)).toBe('join');
    await claim();
  });

  it('go out while a room is made, to users and to addresses', async () => {
    const entry = (address: string): object => ({
      medium: 'email',
      address,
      id_server: server.name,
      id_access_token: 'secret',
    });
    const roomId = await create({
      is_direct: true,
      invite_3pid: [entry('bob@example.net'), entry('dora@example.net')],
    });
    const member = await rooms.get(RoomStateReader).currentEvent(roomId, 'm.room.member', '@bob:example.org');
    expect(member?.event.content).toMatchObject({ membership: 'invite', is_direct: true });
    expect(await offers(roomId)).toHaveLength(1);
    expect(asked.at(-1)).toBe('send @alice:example.org email dora@example.net true');
    await expect(create({ invite_3pid: [{ ...entry('x@y.z'), id_access_token: undefined }] })).rejects.toMatchObject({
      errcode: 'M_MISSING_PARAM',
    });
    await expect(create({ invite_3pid: Array.from({ length: 21 }, () => entry('x@y.z')) })).rejects.toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
  });

  it('are limited, each of a request for itself, before anybody is asked or a room is made', async () => {
    const roomId = await create();
    limiter.taken.length = 0;
    const entry = { medium: 'email', address: 'bob@example.net', id_server: server.name, id_access_token: 'secret' };
    await create({ invite_3pid: [entry, { ...entry, address: 'dora@example.net' }] });
    await invite(roomId, 'dora@example.net');
    expect(limiter.taken).toEqual([`${alice.userId} 2`, `${alice.userId} 1`]);
    server.requests.length = 0;
    limiter.refuses = true;
    const rooms = async (): Promise<number> => (await test.database.query('SELECT room_id FROM rooms')).length;
    const before = await rooms();
    try {
      await expect(invite(roomId, 'eve@example.net')).rejects.toMatchObject({ status: 429 });
      await expect(create({ invite_3pid: [entry] })).rejects.toMatchObject({ errcode: 'M_LIMIT_EXCEEDED' });
    } finally {
      limiter.refuses = false;
    }
    expect(server.requests).toEqual([]);
    expect(await rooms()).toBe(before);
  });

  it('ask again, once, when the pepper has changed, and do without hashes where they must', async () => {
    const roomId = await create();
    server.rotations = 1;
    await invite(roomId, 'bob@example.net');
    expect(server.requests.map(({ path }) => path)).toEqual(['hash_details', 'lookup', 'hash_details', 'lookup']);
    server.rotations = 5;
    await expect(invite(roomId, 'dora@example.net')).rejects.toMatchObject({ status: 400 });
    server.rotations = 0;
    server.algorithms = ['none'];
    server.bindings.set('carl@example.net email', '@carl:example.org');
    await invite(roomId, 'carl@example.net');
    expect(await membershipOf('@carl:example.org', roomId)).toBe('invite');
    server.algorithms = ['md5'];
    await expect(invite(roomId, 'dora@example.net')).rejects.toMatchObject({ status: 400 });
    server.algorithms = ['none', 'sha256'];
  });

  it('may be refused by modules, before and after the look-up', async () => {
    const roomId = await create();
    await expect(invite(roomId, 'never@example.net')).rejects.toMatchObject({ status: 403 });
    expect(server.requests).toEqual([]);
    await expect(invite(roomId, 'spam@example.net')).rejects.toMatchObject({ status: 403 });
    expect(server.requests.map(({ path }) => path)).toEqual(['hash_details', 'lookup']);
  });

  it.each<[string, Partial<ThreepidInvite>, number, string]>([
    ['no token', { idAccessToken: undefined }, 400, 'M_MISSING_PARAM'],
    ['a token with a line break', { idAccessToken: 'a\nb' }, 400, 'M_INVALID_PARAM'],
    ['a path for a server', { idServer: 'localhost/evil' }, 400, 'M_INVALID_PARAM'],
    ['an unknown medium', { medium: 'pigeon' }, 400, 'M_INVALID_PARAM'],
    ['an address that is none', { address: 'dora' }, 400, 'M_INVALID_PARAM'],
    ['a number that is none', { medium: 'msisdn', address: 'dora@example.net' }, 400, 'M_INVALID_PARAM'],
    ['an address that is too long', { address: 'x'.repeat(600) }, 400, 'M_INVALID_PARAM'],
  ])('are refused with %s, and nobody is asked', async (_name, more, status, errcode) => {
    const roomId = await create();
    await expect(invite(roomId, 'dora@example.net', more)).rejects.toMatchObject({ status, errcode });
    expect(server.requests).toEqual([]);
  });

  it.each<[string, string, readonly [number, string], number, string]>([
    ['an expired token', 'hash_details', [401, '{"errcode":"M_UNAUTHORIZED"}'], 403, 'M_FORBIDDEN'],
    ['terms to be signed', 'lookup', [403, '{"errcode":"M_TERMS_NOT_SIGNED"}'], 400, 'M_TERMS_NOT_SIGNED'],
    ['a crash', 'lookup', [500, '{}'], 502, 'M_UNKNOWN'],
    ['no JSON', 'hash_details', [200, '<html>'], 502, 'M_UNKNOWN'],
    ['no pepper', 'hash_details', [200, '{}'], 502, 'M_UNKNOWN'],
    ['an endless answer', 'hash_details', [200, `"${'x'.repeat(70_000)}"`], 502, 'M_UNKNOWN'],
    ['a strange token', 'store-invite', [200, '{"token":"a b","display_name":"","public_keys":[]}'], 502, 'M_UNKNOWN'],
    ['no keys', 'store-invite', [200, '{"token":"a","display_name":"","public_keys":[]}'], 502, 'M_UNKNOWN'],
  ])('fail cleanly on %s', async (_name, path, answer, status, errcode) => {
    const roomId = await create();
    server.answers.set(path, answer);
    await expect(invite(roomId, 'dora@example.net')).rejects.toMatchObject({ status, errcode });
    expect(await offers(roomId)).toEqual([]);
  });

  it('ask nobody for members without the power to invite', async () => {
    const dora = requesterOf('dora');
    const roomId = await create({
      preset: 'public_chat',
      power_level_content_override: { invite: 50, events: { 'm.room.third_party_invite': 0 } },
    });
    await rooms.get(JoinService).join(dora, roomId);
    for (const address of ['bob@example.net', 'nobody@example.net'])
      await expect(rooms.get(ThreepidInvites).invite(dora, roomId, inviteOf(address))).rejects.toMatchObject({
        status: 403,
        errcode: 'M_FORBIDDEN',
      });
    expect(server.requests).toEqual([]);
    expect(asked).toEqual([]);
    await invite(roomId, 'nobody@example.net');
    expect(await offers(roomId)).toHaveLength(1);
  });

  it('ask nobody for those who are not in the room, nor inside a guarded network', async () => {
    const roomId = await create();
    const stranger = requesterOf('stranger');
    await expect(
      rooms.get(ThreepidInvites).invite(stranger, roomId, inviteOf('dora@example.net')),
    ).rejects.toMatchObject({ status: 403 });
    const guarded = new OutboundHttp({ guard: new IpGuard(blocked, []), userAgent: 'test', ca: [certificate] });
    const again = await buildRooms({ database: await test.reopen(clock), clock, http: guarded });
    await expect(again.get(ThreepidInvites).invite(alice, roomId, inviteOf('dora@example.net'))).rejects.toMatchObject({
      status: 502,
    });
    expect(server.requests).toEqual([]);
    await again.close();
    await guarded.close();
  });
});
