import { signJson, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { stateKeyOf } from '@rookery/state-res';
import { RoomBlocking } from '@rookery/rooms';
import { join } from 'node:path';
import { probe } from '../modules/probe-server.js';
import { createRoom, databases, ok, outcome as said, say, type WireEvent } from '../rooms/rooms-client.js';
import { ElsewhereRoom } from './elsewhere-room.js';
import { type Answer, FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const fed = '/_matrix/federation';
const part = encodeURIComponent;
const bob = '@bob:visitor.test';

describe.each(databases)('what keeps other servers out (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let visitor: PlayedServer;
  let unwanted: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    const wide = { per_second: 1000, burst_count: 1000 };
    home = await world.homeserver('home.test', {
      database,
      settings: {
        rc_federation: { sleep_limit: 1_000, reject_limit: 1_000, concurrent: 50 },
        rc_invites: { per_room: wide, per_user: { per_second: 0.001, burst_count: 3 }, per_issuer: wide },
        rc_joins_per_room: { per_second: 0.001, burst_count: 2 },
        rc_third_party_invite: { per_second: 0.001, burst_count: 3 },
        federation_domain_whitelist: ['visitor.test', 'eager.test'],
        modules: [{ module: join(import.meta.dirname, '../modules/fixtures/probe.ts') }],
      },
    });
    visitor = await world.played('visitor.test');
    unwanted = await world.played('unwanted.test');
    alice = await home.registerUser('alice');
  });
  beforeEach(() => probe.reset());
  afterAll(() => world.stop());

  const bodies = async (roomId: string): Promise<unknown[]> =>
    (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`)).chunk.map(
      (event) => event.content['body'],
    );
  const shows = (roomId: string, body: string): Promise<unknown> =>
    eventually(async () => (await bodies(roomId)).includes(body));
  const publicRoom = (): Promise<string> => createRoom(alice, { preset: 'public_chat' });
  const invite = async (target: string, isBlocked = false): Promise<{ answer: Answer; roomId: string }> => {
    const room = new ElsewhereRoom(visitor, '10');
    if (isBlocked) await home.server.service(RoomBlocking).block(room.roomId, alice.userId);
    const content = { membership: 'invite' };
    const event = room.make({ type: 'm.room.member', stateKey: target, content });
    const create = room.state.get(stateKeyOf('m.room.create', ''))!.pdu;
    const uri = `${fed}/v2/invite/${part(room.roomId)}/${part(event.eventId)}`;
    const shown = { room_version: '10', event: event.pdu, invite_room_state: [create] };
    return { answer: await visitor.request(home, 'PUT', uri, shown), roomId: room.roomId };
  };

  it('modules that do not want an event', async () => {
    const visit = await Visit.join(visitor, home, await publicRoom(), bob);
    probe.answers.shouldDropFederatedEvent = ({ content }: { content: JsonObject }) => content['body'] === 'dropped';
    const start = visit.heads;
    const dropped = visit.message(bob, 'dropped');
    visit.heads = start;
    const kept = visit.message(bob, 'kept');
    expect(await visit.send(dropped, kept)).toEqual({ [dropped.eventId]: {}, [kept.eventId]: {} });
    await shows(visit.roomId, 'kept');
    expect(await bodies(visit.roomId)).not.toContain('dropped');
    const asked = probe.fired.filter(({ name }) => name === 'shouldDropFederatedEvent');
    expect(asked.map(({ context }) => [context.source, context.origin])).toEqual([
      ['federation', 'visitor.test'],
      ['federation', 'visitor.test'],
    ]);
    // One that fails lets nothing pass.
    probe.answers.shouldDropFederatedEvent = () => {
      throw new Error('broken');
    };
    const failed = visit.message(bob, 'unjudged');
    expect(await visit.send(failed)).toEqual({ [failed.eventId]: { error: 'The event could not be judged' } });
  });

  it('modules that think an event is spam', async () => {
    const visit = await Visit.join(visitor, home, await publicRoom(), bob);
    probe.answers.checkEventForSpam = ({ content }: { content: JsonObject }) =>
      content['body'] === 'spam' ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM';
    const spam = visit.message(bob, 'spam');
    await visit.send(spam, visit.message(bob, 'fine'));
    await shows(visit.roomId, 'fine');
    expect(await bodies(visit.roomId)).not.toContain('spam');
    const event = await alice.request('GET', `/rooms/${visit.roomId}/event/${part(spam.eventId)}`);
    expect(event.status).toBe(404);
  });

  it('modules that want no join', async () => {
    const roomId = await publicRoom();
    const event = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', roomId, bob)).body);
    probe.answers.checkEventAllowed = () => false;
    expect(said(await Visit.send(visitor, home, 'join', event))).toBe('403 M_FORBIDDEN');
  });

  it('modules that want no invites, limits of invites, and blocked rooms', async () => {
    const carol = await home.registerUser(`carol${Math.random().toString(36).slice(2)}`);
    probe.answers.federatedUserMayInvite = () => ({ errcode: 'M_FORBIDDEN' });
    expect(said((await invite(carol.userId)).answer)).toBe('403 M_FORBIDDEN');
    probe.reset();
    expect(said((await invite(carol.userId)).answer)).toBe('200');
    expect(said((await invite(carol.userId)).answer)).toBe('200');
    expect(said((await invite(carol.userId)).answer)).toBe('429 M_LIMIT_EXCEEDED');
    // What is dropped is answered as if it had arrived; a module that fails lets nothing pass.
    const dana = await home.registerUser('dana');
    probe.reset();
    probe.answers.shouldDropFederatedEvent = ({ content }: { content: JsonObject }) =>
      content['membership'] === 'invite';
    expect(said((await invite(dana.userId)).answer)).toBe('200');
    expect(probe.fired.some(({ name }) => name === 'federatedUserMayInvite')).toBe(false);
    probe.answers.shouldDropFederatedEvent = () => {
      throw new Error('broken');
    };
    expect(said((await invite(dana.userId)).answer)).toBe('500 M_UNKNOWN');
    probe.reset();
    const kept = await invite(dana.userId);
    const { rooms } = await ok<{ rooms: { invite: JsonObject } }>(dana, 'GET', '/sync');
    expect(Object.keys(rooms.invite)).toEqual([kept.roomId]);
    // Of what was kept modules are told, and of what ends it.
    const told = (membership: string): Promise<unknown> =>
      eventually(() =>
        probe.fired.find(({ name, args }) => {
          const { stateKey, content } = args[0] as { stateKey?: string; content: JsonObject };
          return name === 'onNewEvent' && stateKey === dana.userId && content['membership'] === membership;
        }),
      );
    await told('invite');
    await ok(dana, 'POST', `/rooms/${part(kept.roomId)}/leave`, {});
    await told('leave');
    expect((await invite(alice.userId, true)).answer).toMatchObject({
      ...{ status: 403, body: { error: 'This room has been blocked on this server' } },
    });
  });

  it('the list of servers', async () => {
    expect(said(await sendTransaction(unwanted, home, []))).toBe('403 M_FORBIDDEN');
    const roomId = await publicRoom();
    expect(said(await Visit.make(unwanted, home, 'join', roomId, '@x:unwanted.test'))).toBe('403 M_FORBIDDEN');
  });

  it('the pace of joins to a room', async () => {
    const roomId = await publicRoom();
    const attempts: string[] = [];
    for (const name of ['a', 'b', 'c', 'd']) {
      const userId = `@${name}:visitor.test`;
      const event = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', roomId, userId)).body);
      attempts.push(said(await Visit.send(visitor, home, 'join', event)));
    }
    expect(attempts.at(-1)).toBe('429 M_LIMIT_EXCEEDED');
    expect(attempts[0]).toBe('200');
  });

  describe('invites to addresses', () => {
    const idKey = SigningKey.fromSeed('id', new Uint8Array(32).fill(77));
    const leave = async (roomId: string): Promise<void> => {
      const content = {
        ...{ display_name: 'b...', public_key: idKey.publicKey },
        public_keys: [{ public_key: idKey.publicKey }],
      };
      await ok(alice, 'PUT', `/rooms/${roomId}/state/m.room.third_party_invite/token`, content);
    };
    const claim = (userId: string): JsonObject =>
      signJson({ mxid: userId, token: 'token', sender: alice.userId }, 'id.test', idKey);
    const exchange = (
      roomId: string,
      userId: string,
      signed: JsonObject,
      change: JsonObject = {},
      by = visitor,
    ): Promise<Answer> =>
      by.request(home, 'PUT', `${fed}/v1/exchange_third_party_invite/${part(roomId)}`, {
        ...{ type: 'm.room.member', room_id: roomId, sender: alice.userId, state_key: userId },
        content: { membership: 'invite', third_party_invite: { display_name: 'b...', signed } },
        ...change,
      });

    it('are exchanged for invites of users', async () => {
      const roomId = await createRoom(alice, { room_version: '10' });
      await leave(roomId);
      const unbound = SigningKey.fromSeed('id', new Uint8Array(32).fill(78));
      expect(said(await exchange(roomId, bob, signJson({ mxid: bob, token: 'token' }, 'id.test', unbound)))).toBe(
        '403 M_FORBIDDEN',
      );
      expect(said(await exchange(roomId, bob, claim('@other:visitor.test')))).toBe('403 M_FORBIDDEN');
      expect(said(await exchange(roomId, '@x:unwanted.test', claim('@x:unwanted.test')))).toBe('403 M_FORBIDDEN');
      expect(said(await exchange(roomId, bob, claim(bob), { room_id: '!o:home.test' }))).toBe('400 M_INVALID_PARAM');
      expect(said(await exchange(roomId, bob, claim(bob), { type: 'm.room.name' }))).toMatch(/^400/);
      // The invite goes to the server of whoever was invited.
      visitor.answer = ({ url, body }, response) => {
        if (!url.includes('/invite/')) return void response.writeHead(404).end('{"errcode":"M_UNRECOGNIZED"}');
        const { event } = JSON.parse(body) as { event: JsonObject };
        const { signatures: _, unsigned: __, ...rest } = event;
        response.end(JSON.stringify({ event: { ...rest, signatures: event['signatures'] } }));
      };
      // Not signed by that server, it counts for nothing.
      expect(said(await exchange(roomId, bob, claim(bob)))).toMatch(/^502/);
      const member = await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${bob}`);
      expect(member.status).toBe(404);
    });

    it('are exchanged as often as anybody needs', async () => {
      const eager = await world.played('eager.test');
      const roomId = await createRoom(alice, { room_version: '10' });
      const frank = '@frank:eager.test';
      const unknown = signJson({ mxid: frank, token: 'none' }, 'id.test', idKey);
      const answers = Array.from({ length: 300 }, () => exchange(roomId, frank, unknown, {}, eager));
      const outcomes = (await Promise.all(answers)).map(said);
      expect(new Set(outcomes)).toEqual(new Set(['403 M_FORBIDDEN', '429 M_LIMIT_EXCEEDED']));
      expect(outcomes.filter((one) => one.startsWith('403')).length).toBeGreaterThanOrEqual(100);
      // Others are not held up.
      expect(said(await exchange(roomId, bob, signJson({ mxid: bob, token: 'none' }, 'id.test', idKey)))).toBe(
        '403 M_FORBIDDEN',
      );
    });

    const bound = (mxid: string, room_id: string, sender = alice.userId): JsonObject => ({
      ...{ medium: 'email', address: 'd@a.test', mxid, room_id, sender, signed: claim(mxid) },
    });
    const tell = async (method: string, mxid: string, change: JsonObject): Promise<Answer> => {
      const body = JSON.stringify({ medium: 'email', address: 'd@a.test', mxid, ...change });
      const response = await fetch(`${home.baseUrl}${fed}/v1/3pid/onbind`, { method, body });
      return { status: response.status, body: (await response.json()) as JsonObject };
    };

    it.each(['PUT', 'POST'])('are claimed by local users, as identity servers tell (%s)', async (method) => {
      const dave = await home.registerUser(`dave${Math.random().toString(36).slice(2)}`);
      const roomId = await createRoom(alice, { room_version: '10' });
      await leave(roomId);
      const bind = (change: JsonObject): Promise<Answer> =>
        tell(method, dave.userId, { invites: [bound(dave.userId, roomId)], ...change });
      expect(said(await bind({ mxid: '@nobody:home.test' }))).toBe('400 M_INVALID_PARAM');
      expect(said(await bind({ mxid: '@x:elsewhere.test' }))).toBe('400 M_INVALID_PARAM');
      expect(said(await bind({ mxid: 5 as never }))).toMatch(/^400/);
      expect(said(await bind({}))).toBe('200');
      const { body } = await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${dave.userId}`);
      expect(body['membership']).toBe('invite');
      // However many rooms they were invited to: the pace of those who invite is not theirs.
      const rooms = await Promise.all(Array.from({ length: 5 }, () => createRoom(alice, { room_version: '10' })));
      for (const one of rooms) await leave(one);
      expect(said(await bind({ invites: rooms.map((one) => bound(dave.userId, one)) }))).toBe('200');
      for (const one of rooms)
        expect(await ok(alice, 'GET', `/rooms/${one}/state/m.room.member/${dave.userId}`)).toMatchObject({
          membership: 'invite',
        });
    });

    it('are not asked about as often as a stranger likes', async () => {
      const erin = await home.registerUser('erin');
      const invites = Array.from({ length: 100 }, () => bound(erin.userId, '!r:visitor.test', '@x:visitor.test'));
      await tell('PUT', erin.userId, { invites });
      expect(said(await tell('PUT', erin.userId, { invites }))).toBe('429 M_LIMIT_EXCEEDED');
    });
  });

  it('nothing of it, where nothing is wrong', async () => {
    const visit = await Visit.join(visitor, home, await publicRoom(), bob);
    await visit.send(visit.message(bob, 'welcome'));
    await shows(visit.roomId, 'welcome');
    await say(alice, visit.roomId, 'thank you');
  });
});
