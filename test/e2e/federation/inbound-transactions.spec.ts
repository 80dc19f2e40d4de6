import { Database } from '@rookery/database';
import { type RoomEvent, signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, ok, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { type Answer, type Asked, FederationWorld, type PlayedServer, send } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const v1 = '/_matrix/federation/v1';
const bob = '@bob:visitor.test';
const eve = '@eve:other.test';
const errorsOf = (answer: Answer): string[] =>
  Object.values(answer.body['pdus'] as Record<string, { error?: string }>).map(({ error }) => error ?? 'fine');

describe.each(databases)('transactions of other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let visitor: PlayedServer;
  let other: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', {
      database,
      settings: {
        rc_federation: { sleep_limit: 1_000, concurrent: 50 },
        federation: { max_short_retry_delay: 1, max_long_retry_delay: 1, client_timeout: 120_000 },
      },
    });
    visitor = await world.played('visitor.test');
    other = await world.played('other.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  const bodies = async (roomId: string): Promise<unknown[]> =>
    (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`)).chunk.map(
      (event) => event.content['body'] ?? event.content['topic'] ?? event.type,
    );
  const shows = (roomId: string, body: string): Promise<unknown> =>
    eventually(async () => (await bodies(roomId)).includes(body));
  const visitRoom = async (version = '12', more: object = {}): Promise<Visit> => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version, ...more });
    return Visit.join(visitor, home, roomId, bob);
  };
  /** What has come before it has been dealt with. */
  const settled = async (visit: Visit): Promise<void> => {
    const last = visit.message(bob, `settled ${Math.random()}`);
    await visit.send(last);
    await shows(visit.roomId, last.content['body'] as string);
  };

  it('are answered once, however often they come', async () => {
    const visit = await visitRoom();
    const message = visit.message(bob, 'once');
    const answers = await Promise.all([1, 2, 3].map(() => sendTransaction(visitor, home, [message.pdu], [], 'same')));
    const [first] = answers;
    expect(first?.body).toEqual({ pdus: { [message.eventId]: {} } });
    // With the same id it is the same transaction, whatever is in it.
    const another = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'another' } });
    answers.push(await sendTransaction(visitor, home, [another.pdu], [], 'same'));
    await home.restart();
    answers.push(await sendTransaction(visitor, home, [another.pdu], [], 'same'));
    for (const answer of answers) expect(answer).toEqual(first);
    await shows(visit.roomId, 'once');
    await settled(visit);
    expect((await bodies(visit.roomId)).filter((body) => body === 'once')).toHaveLength(1);
    expect(await bodies(visit.roomId)).not.toContain('another');
    // Another server has ids of its own.
    expect((await sendTransaction(other, home, [], [], 'same')).body).toEqual({ pdus: {} });
  });

  it('are answered once they are in a room that they flood, and hold up nobody else', async () => {
    const quiet = await visitRoom();
    const flooded = await Visit.join(other, home, await createRoom(alice, { preset: 'public_chat' }), eve);
    const { heads, roomId } = flooded;
    // Forks: each follows upon the same event.
    const flood = Array.from({ length: 4 }, (_, page) =>
      Array.from({ length: 50 }, (__, n) =>
        flooded.make({ type: 'm.room.message', sender: eve, content: { body: `${page} ${n}` }, prev: heads }),
      ),
    );
    const sent = flood.map(async (events, page) => {
      const pdus = events.map(({ pdu }) => pdu);
      return errorsOf(await sendTransaction(other, home, pdus, [], `flood${page}`));
    });
    const message = quiet.message(bob, 'meanwhile');
    await quiet.send(message);
    await shows(quiet.roomId, 'meanwhile');
    expect(new Set((await Promise.all(sent)).flat())).toEqual(new Set(['fine']));
    // The last answer came behind its events.
    expect(await bodies(roomId)).toContain('3 49');
    const stored = await home.server
      .service(Database)
      .query<{ event_id: string }>('SELECT event_id FROM events WHERE room_id IN (?, ?) ORDER BY stream_ordering', [
        quiet.roomId,
        roomId,
      ]);
    const places = new Map(stored.map((row, place) => [row.event_id, place]));
    expect(places.get(message.eventId)).toBeLessThan(places.get(flood.at(-1)!.at(-1)!.eventId)!);
  });

  it('are refused when they are none', async () => {
    const attempt = async (content: JsonObject, id = `r${Math.random()}`): Promise<string> => {
      const { status, body } = await visitor.request(home, 'PUT', `${v1}/send/${id}`, content);
      return `${status} ${String(body['errcode'])}`;
    };
    const base = { origin: visitor.name, origin_server_ts: 0 };
    expect(await attempt({ ...base, pdus: Array.from({ length: 51 }, () => ({})) })).toBe('400 M_BAD_JSON');
    expect(await attempt({ ...base, pdus: [], edus: Array.from({ length: 101 }, () => ({})) })).toBe('400 M_BAD_JSON');
    expect(await attempt({ ...base, pdus: {} })).toBe('400 M_BAD_JSON');
    expect(await attempt({ ...base, pdus: [], edus: 'x' })).toBe('400 M_BAD_JSON');
    expect(await attempt({ ...base, origin: other.name, pdus: [] })).toBe('400 M_BAD_JSON');
    expect(await attempt({ ...base, pdus: [] }, 'x'.repeat(256))).toBe('400 M_INVALID_PARAM');
    const uri = `${v1}/send/unsigned`;
    expect((await send(home, 'PUT', uri, undefined, { ...base, pdus: [] })).status).toBe(401);
    // What is no event or no EDU harms nothing around it.
    const visit = await visitRoom();
    const message = visit.message(bob, 'among rubbish');
    const rubbish = [null, 5, 'x', [], {}, { room_id: visit.roomId }, { room_id: '!no:where' }, { room_id: {} }];
    const edus = [null, 5, {}, { edu_type: 5, content: {} }, { edu_type: 'm.unknown', content: {} }];
    const uri2 = `${v1}/send/rubbish`;
    const content = { ...base, pdus: [...rubbish, message.pdu], edus } as JsonObject;
    const authorization = visitor.authorization('PUT', uri2, 'home.test', content);
    // Not held against the schema: none of it is as specified.
    const answer = await fetch(`${home.baseUrl}${uri2}`, {
      method: 'PUT',
      headers: { authorization },
      body: JSON.stringify(content),
    });
    expect(await answer.json()).toEqual({ pdus: { [message.eventId]: {} } });
    await shows(visit.roomId, 'among rubbish');
  });

  it('have nobody asked for keys because of rooms that this server has left', async () => {
    const visit = await visitRoom();
    await ok(alice, 'POST', `/rooms/${visit.roomId}/leave`, {});
    const third = await world.played(`third-${database}.test`);
    const sender = `@x:${third.name}`;
    const join = visit.make({ type: 'm.room.member', sender, stateKey: sender, content: { membership: 'join' } });
    const answer = await sendTransaction(visitor, home, [signEvent(join, third.name, third.key).pdu]);
    expect(errorsOf(answer)).toEqual(['This server is not in the room']);
    expect(third.asked).toEqual([]);
  });

  it.each(['1', '10', '12'])('bring only events that are what they seem (version %s)', async (version) => {
    const visit = await visitRoom(version);
    const stranger = SigningKey.fromSeed('played', new Uint8Array(32).fill(1));
    const fresh = (body: string): RoomEvent => visit.make({ type: 'm.room.message', sender: bob, content: { body } });
    const bare = (event: RoomEvent): RoomEvent => ({ ...event, pdu: { ...event.pdu, signatures: {} } });
    const unsigned = bare(fresh('unsigned'));
    const forged = signEvent(bare(fresh('forged')), visitor.name, stranger);
    const unknownKey = signEvent(
      bare(fresh('unknown key')),
      visitor.name,
      SigningKey.fromSeed('unheard', new Uint8Array(32).fill(1)),
    );
    const ofEve = visit.make({ type: 'm.room.message', sender: eve, content: { body: 'for eve' } });
    const ofAlice = visit.make({ type: 'm.room.message', sender: alice.userId, content: { body: 'for alice' } });
    const tooLarge = { ...fresh('large').pdu, content: { body: 'x'.repeat(70_000) } };
    const answer = await sendTransaction(visitor, home, [
      ...[unsigned, forged, unknownKey, ofEve, ofAlice].map((event) => event.pdu),
      ...(version === '1' ? [tooLarge] : []),
    ]);
    expect(errorsOf(answer)).toEqual([
      'Events are taken from the server of their sender only',
      'Events are taken from the server of their sender only',
      ...(version === '1' ? ['This is no event: larger than 65536 bytes'] : []),
      'visitor.test has not signed it',
      'visitor.test has not signed it rightly',
      'visitor.test has signed it with a key that cannot be had',
    ]);
    // What was changed on the way comes without what was changed.
    const changed = visit.next({ type: 'm.room.message', sender: bob, content: { body: 'honest' } });
    const content = { body: 'changed' };
    expect(errorsOf(await sendTransaction(visitor, home, [{ ...changed.pdu, content }]))).toEqual(['fine']);
    await settled(visit);
    const shown = await bodies(visit.roomId);
    for (const body of ['unsigned', 'forged', 'unknown key', 'for eve', 'for alice', 'changed', 'honest'])
      expect(shown).not.toContain(body);
    const redacted = await ok<WireEvent>(
      alice,
      'GET',
      `/rooms/${visit.roomId}/event/${encodeURIComponent(changed.eventId)}`,
    );
    expect(redacted.content).toEqual({});
  });

  it.each([
    ['3', {}],
    ['10', {}],
    ['11', 'x'],
    ['12', 'x'],
  ])('bring no invites that lose their excuse for not being signed (version %s)', async (version, excuse) => {
    const roomId = await createRoom(alice, {
      ...{ preset: 'public_chat', room_version: version, power_level_content_override: { invite: 0 } },
    });
    await Visit.join(other, home, roomId, eve);
    const visit = await Visit.join(visitor, home, roomId, bob);
    const forgedBy = (sender: string, target: string): RoomEvent => {
      const content = { membership: 'invite', third_party_invite: excuse };
      const { pdu } = visit.make({ type: 'm.room.member', sender, stateKey: target, content });
      // With a wrong hash the event is kept as it would be without that key.
      const changed = visit.parse({ ...pdu, hashes: { sha256: 'A'.repeat(43) }, signatures: {} });
      return signEvent(changed, visitor.name, visitor.key);
    };
    const friend = await home.registerUser(`friend${version}`);
    const forged = [alice.userId, eve].flatMap((sender) =>
      [friend.userId, '@carol:visitor.test'].map((target) => forgedBy(sender, target)),
    );
    const refused = forged.map(({ eventId, sender }) => [
      eventId,
      { error: `${sender === eve ? 'other.test' : 'home.test'} has not signed it` },
    ]);
    expect(await visit.send(...forged)).toEqual(Object.fromEntries(refused));
    await settled(visit);
    for (const { stateKey } of forged)
      expect((await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${stateKey}`)).status).toBe(404);
    const { rooms } = await ok<{ rooms?: { invite?: object } }>(friend, 'GET', '/sync');
    expect(rooms?.invite ?? {}).toEqual({});
  });

  it('bring nothing into rooms that shut their server out, or in which this one is not', async () => {
    const visit = await visitRoom();
    await setState(alice, visit.roomId, 'm.room.server_acl', { allow: ['*'], deny: ['VISITOR.*'] });
    const shutOut = visit.message(bob, 'from outside');
    expect(await visit.send(shutOut)).toEqual({
      [shutOut.eventId]: { error: 'Your server may not take part in this room' },
    });
    expect(await bodies(visit.roomId)).not.toContain('from outside');
    const left = await visitRoom();
    const leave = await ok(alice, 'POST', `/rooms/${left.roomId}/leave`, {});
    expect(leave).toEqual({});
    const late = left.message(bob, 'late');
    expect(await left.send(late)).toEqual({ [late.eventId]: { error: 'This server is not in the room' } });
  });

  it('bring events in any order, twice, and in forks', async () => {
    const visit = await visitRoom('10');
    const [start] = visit.heads as [RoomEvent];
    const chain = ['a', 'b', 'c', 'd'].map((body) => visit.message(bob, body));
    const fork = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'fork' }, prev: [start] });
    const merged = visit.next({
      ...{ type: 'm.room.message', sender: bob, content: { body: 'merged' } },
      prev: [chain[3]!, fork],
    });
    // Whoever is asked for what comes first has nothing to say.
    await visit.send(chain[0]!, chain[0]!, chain[1]!, fork, chain[2]!, chain[3]!, merged, chain[1]!);
    await visit.send(merged, chain[0]!);
    await shows(visit.roomId, 'merged');
    expect((await bodies(visit.roomId)).slice(0, 6).sort()).toEqual(['a', 'b', 'c', 'd', 'fork', 'merged']);
  });

  describe('with EDUs about events that are on their way', () => {
    const carol = '@carol:visitor.test';
    const receiptFor = (roomId: string, userId: string, eventId: string, data: JsonObject = {}): object => ({
      edu_type: 'm.receipt',
      content: { [roomId]: { 'm.read': { [userId]: { event_ids: [eventId], data: { ts: 1, ...data } } } } },
    });
    /** What alice is told that somebody has read, by thread. */
    const readBy = async (roomId: string, userId: string): Promise<Record<string, string>> => {
      const filter = encodeURIComponent(JSON.stringify({ room: { rooms: [roomId] } }));
      const { rooms } = await ok<{
        rooms: { join: Record<string, { ephemeral: { events: { type: string; content: object }[] } }> };
      }>(alice, 'GET', `/sync?filter=${filter}`);
      const read: Record<string, string> = {};
      for (const { type, content } of rooms.join[roomId]!.ephemeral.events)
        if (type === 'm.receipt')
          for (const [eventId, types] of Object.entries(content as Record<string, Record<string, JsonObject>>)) {
            const mine = types['m.read']?.[userId] as { thread_id?: string } | undefined;
            if (mine) read[mine.thread_id ?? ''] = eventId;
          }
      return read;
    };

    it('keep receipts that come with the event, or long before it', async () => {
      const visit = await visitRoom();
      for (let n = 0; n < 5; n++) {
        const messages = Array.from({ length: 10 }, () => visit.message(bob, `read ${n}`));
        const last = messages.at(-1)!.eventId;
        await sendTransaction(
          visitor,
          home,
          messages.map(({ pdu }) => pdu),
          [receiptFor(visit.roomId, bob, last), receiptFor(visit.roomId, bob, last, { thread_id: 'main' })],
        );
        await eventually(
          async () => Object.values(await readBy(visit.roomId, bob)).filter((id) => id === last).length === 1,
        );
        expect(await readBy(visit.roomId, bob)).toEqual({ '': last });
      }
      const late = visit.message(bob, 'late');
      await sendTransaction(visitor, home, [], [receiptFor(visit.roomId, bob, late.eventId)]);
      await say(alice, visit.roomId, 'in between');
      expect(Object.values(await readBy(visit.roomId, bob))).not.toContain(late.eventId);
      await visit.send(late);
      await eventually(async () => (await readBy(visit.roomId, bob))[''] === late.eventId);
    });

    it('keep a receipt beside what names no room', async () => {
      const visit = await visitRoom();
      const [read] = visit.heads as [RoomEvent];
      const { content } = receiptFor('!a\0:home.test', bob, read.eventId) as { content: object };
      const receipt = receiptFor(visit.roomId, bob, read.eventId) as { content: object };
      await sendTransaction(visitor, home, [], [{ ...receipt, content: { ...content, ...receipt.content } }]);
      expect(await readBy(visit.roomId, bob)).toEqual({ '': read.eventId });
    });

    it('see who joins with the events in front of them', async () => {
      const visit = await visitRoom();
      const join = visit.next({
        ...{ type: 'm.room.member', stateKey: carol, sender: carol, content: { membership: 'join' } },
      });
      const messages = Array.from({ length: 30 }, (_, n) => visit.message(bob, `before ${n}`));
      const { next_batch: since } = await ok<{ next_batch: string }>(alice, 'GET', '/sync');
      await sendTransaction(...([visitor, home, [join, ...messages].map(({ pdu }) => pdu)] as const), [
        { edu_type: 'm.typing', content: { room_id: visit.roomId, user_id: carol, typing: true } },
        receiptFor(visit.roomId, carol, join.eventId),
        { edu_type: 'm.presence', content: { push: [{ user_id: carol, presence: 'online', last_active_ago: 1 }] } },
      ]);
      await eventually(async () => (await readBy(visit.roomId, carol))[''] === join.eventId);
      interface News {
        readonly presence?: { readonly events: { readonly sender: string }[] };
        readonly rooms?: {
          readonly join: Record<string, { readonly ephemeral?: { readonly events: { content: JsonObject }[] } }>;
        };
      }
      const told = async (): Promise<boolean> => {
        const news = await ok<News>(alice, 'GET', `/sync?since=${since}`);
        const typing = news.rooms?.join[visit.roomId]?.ephemeral?.events.some(
          ({ content }) => Array.isArray(content['user_ids']) && content['user_ids'].includes(carol),
        );
        return (typing ?? false) && (news.presence?.events.some(({ sender }) => sender === carol) ?? false);
      };
      expect(await eventually(told)).toBe(true);
    });

    it('keep receipts of who joins by an event that comes later', async () => {
      const visit = await visitRoom();
      const join = visit.next({
        ...{ type: 'm.room.member', stateKey: carol, sender: carol, content: { membership: 'join' } },
      });
      const here = await say(alice, visit.roomId, 'read before the join is known');
      await sendTransaction(visitor, home, [], [receiptFor(visit.roomId, carol, here)]);
      await sendTransaction(visitor, home, [], [receiptFor(visit.roomId, carol, join.eventId, { thread_id: 'main' })]);
      expect(await readBy(visit.roomId, carol)).toEqual({});
      await visit.send(join);
      await eventually(async () => Object.keys(await readBy(visit.roomId, carol)).length > 0);
      expect(Object.values(await readBy(visit.roomId, carol))).toContain(join.eventId);
    });

    it('see what the events in front of them allow', async () => {
      const visit = await visitRoom('12', { power_level_content_override: { users_default: 100 } });
      const acl = (deny: string[]): RoomEvent =>
        visit.next({
          ...{ type: 'm.room.server_acl', stateKey: '', sender: bob, content: { allow: ['*'], deny } },
        });
      const message = visit.message(bob, 'the last');
      await visit.send(message);
      await shows(visit.roomId, 'the last');
      const before = Array.from({ length: 30 }, (_, n) => visit.message(bob, `before ${n}`));
      await sendTransaction(...([visitor, home, [...before, acl([visitor.name])].map(({ pdu }) => pdu)] as const), [
        receiptFor(visit.roomId, bob, message.eventId),
      ]);
      await shows(visit.roomId, 'm.room.server_acl');
      // A receipt of somebody else that is stored behind it.
      const mark = await say(alice, visit.roomId, 'mark');
      await ok(alice, 'POST', `/rooms/${visit.roomId}/receipt/m.read/${encodeURIComponent(mark)}`, {});
      await eventually(async () => Object.values(await readBy(visit.roomId, alice.userId)).includes(mark));
      expect(await readBy(visit.roomId, bob)).toEqual({});
    });
  });

  describe('with gaps', () => {
    /** Answers what a room's server would: from what the visit knows. */
    const answering =
      (visit: Visit, asked: string[] = []) =>
      ({ url, body }: Asked, response: { end(text: string): void; writeHead(status: number): unknown }): void => {
        const [path = '', query = ''] = url.split('?');
        const [, , , , kind = '', first = ''] = path.split('/');
        asked.push(kind);
        const answer = (content: unknown): void => response.end(JSON.stringify(content));
        const ancestors = (ids: readonly string[]): RoomEvent[] =>
          ids.flatMap((id) => visit.known.get(id)?.prevEventIds ?? []).flatMap((id) => visit.known.get(id) ?? []);
        if (kind === 'event') {
          const event = visit.known.get(decodeURIComponent(first));
          return answer({ origin: visitor.name, origin_server_ts: 0, pdus: event ? [event.pdu] : [] });
        }
        if (kind === 'get_missing_events') {
          const { latest_events: latest, earliest_events: earliest } = JSON.parse(body) as Record<string, string[]>;
          const stop = new Set(earliest);
          const found = new Map<string, RoomEvent>();
          for (let level = ancestors(latest ?? []); level.length > 0;) {
            level = level.filter(({ eventId }) => !stop.has(eventId) && !found.has(eventId));
            for (const event of level) found.set(event.eventId, event);
            level = ancestors(level.map(({ eventId }) => eventId));
          }
          return answer({
            events: [...found.values()]
              .slice(0, 10)
              .reverse()
              .map((event) => event.pdu),
          });
        }
        const all = [...visit.state.values()];
        if (kind === 'state_ids')
          return answer({ pdu_ids: all.map((e) => e.eventId), auth_chain_ids: all.map((e) => e.eventId) });
        if (kind === 'state') return answer({ pdus: all.map((e) => e.pdu), auth_chain: all.map((e) => e.pdu) });
        response.writeHead(404);
        answer({ errcode: 'M_UNRECOGNIZED', error: query });
      };
    afterEach(() => {
      visitor.answer = (_, response) => void response.writeHead(404).end('{"errcode":"M_UNRECOGNIZED","error":"No"}');
    });

    it('bring what is missing, too', async () => {
      const visit = await visitRoom();
      visitor.answer = answering(visit);
      for (const body of ['one', 'two', 'three']) visit.message(bob, body);
      await visit.send(visit.message(bob, 'four'));
      await shows(visit.roomId, 'four');
      expect((await bodies(visit.roomId)).slice(0, 4)).toEqual(['four', 'three', 'two', 'one']);
    });

    it('hold up nobody while their server is silent, and are there after a restart', async () => {
      const visit = await visitRoom();
      const asked: string[] = [];
      visitor.answer = ({ url }) => void asked.push(url);
      const before = visit.heads;
      visit.message(bob, 'missing');
      const stuck = visit.message(bob, 'stuck');
      await visit.send(stuck);
      await eventually(() => asked.some((url) => url.includes('get_missing_events')));
      // Others of the same room go on.
      visit.heads = before;
      await visit.send(visit.message(bob, 'not stuck'));
      await shows(visit.roomId, 'not stuck');
      await say(alice, visit.roomId, 'nor am I');
      visitor.answer = answering(visit);
      await home.restart();
      await shows(visit.roomId, 'stuck');
      expect(await bodies(visit.roomId)).toContain('missing');
    });

    it('leave nothing behind that cannot be filled', async () => {
      const visit = await visitRoom();
      visitor.answer = (_, response) => void response.writeHead(403).end('{"errcode":"M_FORBIDDEN","error":"No"}');
      const before = visit.heads;
      visit.message(bob, 'never told');
      await visit.send(visit.message(bob, 'floating'));
      visit.heads = before;
      await settled(visit);
      expect(await bodies(visit.roomId)).not.toContain('floating');
    });
  });

  it('bring state that conflicts, which all resolve alike', async () => {
    const visit = await visitRoom('12', { power_level_content_override: { users_default: 50 } });
    const [start] = visit.heads as [RoomEvent];
    const topics = ['left', 'right'].map((topic) =>
      visit.make({ type: 'm.room.topic', stateKey: '', sender: bob, content: { topic }, prev: [start] }),
    );
    const merge = visit.next({ type: 'm.room.message', sender: bob, content: { body: 'merge' }, prev: topics });
    await visit.send(topics[1]!, topics[0]!, merge);
    await shows(visit.roomId, 'merge');
    const shown = await ok(alice, 'GET', `/rooms/${visit.roomId}/state/m.room.topic/`);
    const uri = `${v1}/state_ids/${visit.roomId}?event_id=${encodeURIComponent(merge.eventId)}`;
    const ids = (await visitor.request(home, 'GET', uri)).body['pdu_ids'] as string[];
    const won = topics.find((event) => ids.includes(event.eventId));
    expect(won?.content).toEqual(shown);
  });
});
