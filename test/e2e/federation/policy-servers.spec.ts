import { parsePdu, type RoomEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { ServerResponse } from 'node:http';
import { createRoom, databases, ok, outcome, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { type Asked, FederationWorld, type PlayedServer } from './federation-world.js';
import { Visit } from './visiting-server.js';

const keyId = 'ed25519:policy_server';
const judge = '@judge:policy.test';
const bob = '@bob:visitor.test';
const judgeKey = SigningKey.fromSeed('policy_server', new Uint8Array(32).fill(77));
const rules = roomVersionRules('12')!;

describe.each(databases)('a room with a policy server (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let policy: PlayedServer;
  let visitor: PlayedServer;
  /** What the policy server says to a text; signs what it is not told to refuse. */
  let refuses = new Set<string>();
  let key = judgeKey;
  let status = 200;
  const judged: RoomEvent[] = [];
  let isSilent = false;
  const silent: ServerResponse[] = [];

  const signatureOf = (event: RoomEvent): unknown => {
    const bare = { ...event, pdu: { ...event.pdu, signatures: {} } };
    const { signatures } = signEvent(bare, 'policy.test', key).pdu as { signatures: Record<string, JsonObject> };
    return { 'policy.test': { [keyId]: signatures['policy.test']?.[key.keyId] } };
  };
  const answer = ({ method, url, body }: Asked): [number, unknown] => {
    if (method !== 'POST' || url !== '/_matrix/policy/v1/sign') return [200, { pdus: {} }];
    const pdu = JSON.parse(body) as JsonObject;
    const event = parsePdu(pdu, rules, { roomId: pdu['room_id'] as string });
    judged.push(event);
    if (status !== 200) return [status, { errcode: 'M_UNKNOWN', error: 'broken' }];
    return refuses.has(String(event.content['body']))
      ? [400, { errcode: 'M_FORBIDDEN', error: 'spam' }]
      : [200, signatureOf(event)];
  };

  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', { database });
    policy = await world.played('policy.test');
    visitor = await world.played('visitor.test');
    policy.answer = (asked, response) => {
      const [code, body] = answer(asked);
      if (isSilent) return void silent.push(response);
      response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    };
    visitor.answer = (_, response) => void response.end('{"pdus":{}}');
    alice = await home.registerUser('alice');
  });
  beforeEach(() => {
    refuses = new Set();
    key = judgeKey;
    status = 200;
    judged.length = 0;
  });
  afterAll(() => world.stop());

  const make = async (): Promise<{ roomId: string; visit: Visit }> => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: '12' });
    await Visit.join(policy, home, roomId, judge);
    const visit = await Visit.join(visitor, home, roomId, bob);
    const content = { via: 'policy.test', public_keys: { ed25519: judgeKey.publicKey } };
    await visit.follow(await setState(alice, roomId, 'm.room.policy', content));
    return { roomId, visit };
  };
  const texts = async (roomId: string): Promise<unknown[]> =>
    (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`)).chunk.map(
      (event) => event.content['body'],
    );
  const isSigned = ({ pdu }: RoomEvent): boolean => {
    const ofPolicy = (pdu['signatures'] as JsonObject)['policy.test'];
    return isJsonObject(ofPolicy) && typeof ofPolicy[keyId] === 'string';
  };

  it('has local events signed by it, or not at all', async () => {
    const { roomId, visit } = await make();
    expect(judged).toEqual([]);
    const eventId = await say(alice, roomId, 'a word');
    expect(judged.map((event) => event.eventId)).toEqual([eventId]);
    // It saw what everybody will see, with the signature of this server beside its own.
    const shown = await visit.follow(eventId);
    expect(isSigned(shown)).toBe(true);
    expect(Object.keys(shown.pdu['signatures'] as object).sort()).toEqual(['home.test', 'policy.test']);
    refuses.add('buy this');
    const send = (body: string): Promise<{ status: number; body: JsonObject }> =>
      alice.request('PUT', `/rooms/${roomId}/send/m.room.message/${encodeURIComponent(body)}`, { body });
    expect(outcome(await send('buy this'))).toBe('403 M_FORBIDDEN');
    key = SigningKey.fromSeed('other', new Uint8Array(32).fill(78));
    expect(outcome(await send('by another key'))).toBe('502 M_UNKNOWN');
    key = judgeKey;
    expect(await texts(roomId)).not.toEqual(expect.arrayContaining(['buy this']));
    expect(await texts(roomId)).not.toEqual(expect.arrayContaining(['by another key']));
    // The choice of the server is nobody's but the room's.
    judged.length = 0;
    await setState(alice, roomId, 'm.room.policy', {
      via: 'nobody.test',
      public_keys: { ed25519: judgeKey.publicKey },
    });
    await say(alice, roomId, 'nobody has to agree');
    expect(judged).toEqual([]);
  });

  it('lets no event become larger than events may be', async () => {
    const { roomId, visit } = await make();
    let largest = '';
    let [sent, refused] = [0, 65_536];
    while (refused - sent > 1) {
      const length = (sent + refused) >> 1;
      const content = { msgtype: 'm.text', body: 'x'.repeat(length) };
      const answer = await alice.request('PUT', `/rooms/${roomId}/send/m.room.message/${length}`, content);
      if (answer.status !== 200) expect(outcome(answer)).toBe('413 M_TOO_LARGE');
      if (answer.status === 200) [sent, largest] = [length, String((answer.body as JsonObject)['event_id'])];
      else refused = length;
    }
    expect(isSigned(await visit.follow(largest))).toBe(true);
    // It was its signature that there was no room for.
    expect(judged.map((event) => String(event.content['body']).length)).toContain(refused);
  });

  it('that is silent holds up no rooms but its own', async () => {
    const rooms = await Promise.all(Array.from({ length: 13 }, make));
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: '12' });
    const visit = await Visit.join(visitor, home, roomId, bob);
    isSilent = true;
    try {
      const waiting = rooms.map((room) => room.visit.message(bob, 'please'));
      await rooms[0]!.visit.send(...waiting);
      await eventually(() => judged.length > 0);
      await visit.send(visit.message(bob, 'elsewhere'));
      await eventually(async () => (await texts(roomId)).includes('elsewhere'));
      // Nobody has given up waiting for it.
      expect(silent.map((response) => response.destroyed)).not.toContain(true);
    } finally {
      isSilent = false;
      for (const response of silent.splice(0)) response.writeHead(500).end('{}');
    }
    // Who waits for long may ask once more.
    await eventually(() => new Set(judged.map((event) => event.eventId)).size === rooms.length);
  });

  it('asks about events of others that it has not signed, and hides what it refuses', async () => {
    const { roomId, visit } = await make();
    const asked = visit.message(bob, 'please');
    expect(await visit.send(asked)).toEqual({ [asked.eventId]: {} });
    await eventually(async () => (await texts(roomId)).includes('please'));
    expect(judged.map((event) => event.eventId)).toEqual([asked.eventId]);
    const [stored] = (await visitor.request(home, 'GET', `/_matrix/federation/v1/event/${asked.eventId}`)).body[
      'pdus'
    ] as JsonObject[];
    expect(isSigned(visit.parse(stored))).toBe(true);
    const plain = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'signed before' } });
    const ready = visit.parse({
      ...plain.pdu,
      signatures: { ...(plain.pdu['signatures'] as JsonObject), ...(signatureOf(plain) as JsonObject) },
    });
    await visit.send(ready);
    await eventually(async () => (await texts(roomId)).includes('signed before'));
    expect(judged).toHaveLength(1);
    visit.apply(ready);
    refuses.add('spam');
    const spam = visit.message(bob, 'spam');
    await visit.send(spam);
    await eventually(() => judged.length === 2);
    const last = await say(alice, roomId, 'still here');
    expect(await texts(roomId)).not.toEqual(expect.arrayContaining(['spam']));
    // Nor does anything here build upon it.
    expect((await visit.follow(last)).prevEventIds).toEqual([ready.eventId]);
  });

  it('shows what it refuses to administrators who ask for that, or for everything that was soft-failed', async () => {
    const { roomId, visit } = await make();
    const root = await home.registerAdministrator('root');
    await ok(root, 'POST', `/rooms/${roomId}/join`, {});
    const wish = (content: JsonObject): Promise<unknown> =>
      ok(root, 'PUT', `/user/${root.userId}/account_data/io.element.synapse.admin_client_config`, content);
    const flags = ['soft_failed', 'policy_server_spammy'].map((name) => `io.element.synapse.${name}`);
    const flagged = async (): Promise<unknown[]> =>
      (await ok<{ chunk: WireEvent[] }>(root, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`)).chunk
        .filter(({ unsigned }) => unsigned?.[flags[0]!] !== undefined)
        .map(({ content, unsigned }) => [content['body'], ...flags.map((flag) => unsigned?.[flag])]);
    refuses.add('spam');
    const [spam, late] = [visit.message(bob, 'spam'), visit.message(bob, 'late')];
    await visit.send(spam);
    await eventually(() => judged.some(({ eventId }) => eventId === spam.eventId));
    await ok(alice, 'POST', `/rooms/${roomId}/ban`, { user_id: bob });
    await visit.send(late);

    await wish({ return_soft_failed_events: true, return_policy_server_spammy_events: false });
    await eventually(async () => (await flagged()).length === 2);
    const asSpam = ['spam', true, true];
    expect(await flagged()).toEqual(expect.arrayContaining([asSpam, ['late', true, undefined]]));
    await wish({ return_policy_server_spammy_events: true });
    expect(await flagged()).toEqual([asSpam]);
    const shown = async ({ eventId }: RoomEvent): Promise<number> =>
      (await root.request('GET', `/rooms/${roomId}/event/${encodeURIComponent(eventId)}`)).status;
    expect([await shown(spam), await shown(late)]).toEqual([200, 404]);
    await wish({});
    expect(await flagged()).toEqual([]);
    expect([await shown(spam), await shown(late)]).toEqual([404, 404]);
  });

  it('can be left while it does not answer, and nothing else', async () => {
    const { roomId, visit } = await make();
    const carl = await home.registerUser('carl');
    await ok(carl, 'POST', `/rooms/${roomId}/join`, {});
    status = 500;
    const send = await alice.request('PUT', `/rooms/${roomId}/send/m.room.message/t1`, { body: 'hello?' });
    expect(outcome(send)).toBe('502 M_UNKNOWN');
    await ok(carl, 'POST', `/rooms/${roomId}/leave`, {});
    const unheard = visit.message(bob, 'unheard');
    await visit.send(unheard);
    await eventually(async () => {
      const { body } = await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${carl.userId}`);
      return body['membership'] === 'leave';
    });
    expect(await texts(roomId)).not.toEqual(expect.arrayContaining(['hello?']));
  });

  it('has memberships signed by it that others bring', async () => {
    const { roomId } = await make();
    judged.length = 0;
    const eve = '@eve:visitor.test';
    const event = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', roomId, eve)).body);
    const { body } = await Visit.send(visitor, home, 'join', event);
    expect(judged.map(({ eventId }) => eventId)).toEqual([event.eventId]);
    expect(isSigned(parsePdu(body['event'], rules, { roomId }))).toBe(true);
  });
});
