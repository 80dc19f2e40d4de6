import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { registerWithSecret } from '../../support/shared-secret.js';
import { createRoom, databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';
import { ElsewhereRoom } from './elsewhere-room.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const bob = '@bob:visitor.test';
const carol = '@carol:third.test';
const versions = ['2', '10', '11', '12'];

interface ServedEvent extends WireEvent {
  readonly unsigned?: { readonly redacted_because?: WireEvent; readonly 'm.relations'?: unknown };
}

/** A redaction as a room version has it: what it redacts stands in its content from version 11 on. */
const redactionOf = (redacts: string, version: string): { type: string; content: JsonObject; redacts?: string } =>
  Number(version) >= 11
    ? { type: 'm.room.redaction', content: { redacts } }
    : { type: 'm.room.redaction', content: {}, redacts };

describe.each(databases)('a redaction that is here before its target (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let visitor: PlayedServer;
  let third: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', {
      database,
      settings: {
        rc_federation: { sleep_limit: 1_000, concurrent: 50 },
        room_list_publication_rules: [{ action: 'allow' }],
        experimental_features: { msc2654_enabled: true },
      },
    });
    visitor = await world.played('visitor.test');
    third = await world.played('third.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  const served = (roomId: string, eventId: string): Promise<ServedEvent> =>
    eventually(async () => {
      const answer = await alice.request<ServedEvent>('GET', `/rooms/${roomId}/event/${encodeURIComponent(eventId)}`);
      return answer.status === 200 && answer.body;
    });

  it.each(versions)('counts once the target comes (version %s)', async (version) => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version });
    const visit = await Visit.join(visitor, home, roomId, bob);
    const word = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'regretted' } });
    const redaction = visit.make({ sender: bob, ...redactionOf(word.eventId, version) });
    await visit.send(redaction);
    await served(roomId, redaction.eventId);
    await visit.send(word);
    const shown = await served(roomId, word.eventId);
    expect(shown.content).toEqual({});
    expect(shown.unsigned?.redacted_because?.event_id).toBe(redaction.eventId);
    // Nor is it in any list.
    const { chunk } = await ok<{ chunk: ServedEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    expect(chunk.find((event) => event.event_id === word.eventId)?.content).toEqual({});
  });

  it.each(versions)('does not count for what its sender may not redact (version %s)', async (version) => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version });
    const other = await Visit.join(third, home, roomId, carol);
    const visit = await Visit.join(visitor, home, roomId, bob);
    const word = other.make({ type: 'm.room.message', sender: carol, content: { body: 'kept' } });
    const redaction = visit.make({ sender: bob, ...redactionOf(word.eventId, version) });
    await visit.send(redaction);
    const after = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'after it' } });
    await visit.send(after);
    await served(roomId, after.eventId);
    await other.send(word);
    const shown = await served(roomId, word.eventId);
    expect(shown.content).toEqual({ body: 'kept' });
    expect(shown.unsigned?.redacted_because).toBeUndefined();
    type Unread = { readonly 'org.matrix.msc2654.unread_count': number };
    const sync = await ok<{ rooms: { join: Record<string, Unread> } }>(alice, 'GET', '/sync');
    expect(sync.rooms.join[roomId]?.['org.matrix.msc2654.unread_count']).toBe(2);
  });

  it.each(['10', '12'])('leaves its target in no thread, and the room unnamed by it (version %s)', async (version) => {
    const roomId = await createRoom(alice, {
      ...{ preset: 'public_chat', visibility: 'public', room_version: version },
      power_level_content_override: { events: { 'm.room.name': 0, 'm.room.topic': 0 } },
    });
    const visit = await Visit.join(visitor, home, roomId, bob);
    const root = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'root' } });
    await visit.send(root);
    const relation = { rel_type: 'm.thread', event_id: root.eventId };
    const reply = (body: string): RoomEvent =>
      visit.make({ type: 'm.room.message', sender: bob, content: { body, 'm.relates_to': relation } });
    const state = (type: string, content: JsonObject): RoomEvent =>
      visit.make({ type, sender: bob, stateKey: '', content });
    const [regretted, name] = [reply('regretted'), state('m.room.name', { name: 'Rude' })];
    for (const { eventId } of [regretted, name])
      await visit.send(visit.make({ sender: bob, ...redactionOf(eventId, version) }));
    const [kept, topic] = [reply('kept'), state('m.room.topic', { topic: 'Polite' })];
    for (const event of [kept, regretted, name, topic]) await visit.send(event);
    await served(roomId, topic.eventId);
    const { unsigned } = await served(roomId, root.eventId);
    expect(unsigned?.['m.relations']).toMatchObject({
      'm.thread': { count: 1, latest_event: { event_id: kept.eventId } },
    });
    const { chunk } = await ok<{ chunk: JsonObject[] }>(alice, 'GET', '/publicRooms');
    const listed = chunk.find((room) => room['room_id'] === roomId);
    expect([listed?.['name'], listed?.['topic']]).toEqual([undefined, 'Polite']);
  });

  it.each(['10', '12'])('is not told where it does not count (version %s)', async (version) => {
    const make = (): Promise<string> => createRoom(alice, { preset: 'public_chat', room_version: version });
    const [roomId, otherId] = [await make(), await make()];
    const said = await say(alice, roomId, 'kept');
    const elsewhere = await say(alice, otherId, 'kept as well');
    const visit = await Visit.join(visitor, home, roomId, bob);
    const own = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'regretted' } });
    await visit.send(own);
    await served(roomId, own.eventId);
    const void1 = visit.make({ sender: bob, ...redactionOf(said, version) });
    await visit.send(void1);
    const void2 = visit.make({ sender: bob, ...redactionOf(elsewhere, version) });
    await visit.send(void2);
    const counts = visit.make({ sender: bob, ...redactionOf(own.eventId, version) });
    await visit.send(counts);
    await served(roomId, counts.eventId);
    const { chunk } = await ok<{ chunk: ServedEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    const { rooms } = await ok<{ rooms: { join: Record<string, { timeline: { events: ServedEvent[] } }> } }>(
      alice,
      'GET',
      '/sync',
    );
    for (const list of [chunk, rooms.join[roomId]!.timeline.events]) {
      const told = list.filter((event) => event.type === 'm.room.redaction').map((event) => event.event_id);
      expect(told).toEqual([counts.eventId]);
    }
    for (const redaction of [void1, void2])
      expect((await alice.request('GET', `/rooms/${roomId}/event/${redaction.eventId}`)).status).toBe(404);
    expect((await served(roomId, said)).content['body']).toBe('kept');
    expect((await served(otherId, elsewhere)).content['body']).toBe('kept as well');
  });

  it.each(['10', '12'])('keeps nothing from whoever redacts all that a user said (version %s)', async (version) => {
    const root = await registerWithSecret(home, `root${version}`, true);
    const make = (): Promise<string> => createRoom(root, { preset: 'public_chat', room_version: version });
    const [roomId, otherId] = [await make(), await make()];
    await alice.request('POST', `/join/${roomId}`, {});
    const spammer = await Visit.join(third, home, roomId, carol);
    const spam = [1, 2].map((n) =>
      spammer.make({ type: 'm.room.message', sender: carol, content: { body: `spam ${n}` } }),
    );
    for (const event of spam) await spammer.send(event);
    for (const { eventId } of spam) expect((await served(roomId, eventId)).content['body']).toMatch(/^spam/);
    // A friend on another server redacts them: here without the power to, and from another room.
    const [here, elsewhere] = [
      await Visit.join(visitor, home, roomId, bob),
      await Visit.join(visitor, home, otherId, bob),
    ];
    const [first, second] = spam.map(({ eventId }) => redactionOf(eventId, version));
    await here.send(here.make({ sender: bob, ...first! }));
    await elsewhere.send(elsewhere.make({ sender: bob, ...second! }));
    for (const visit of [here, elsewhere]) {
      const after = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'after it' } });
      await visit.send(after);
      await eventually(
        async () => (await root.request('GET', `/rooms/${visit.roomId}/event/${after.eventId}`)).status === 200,
      );
    }
    const admin = '/_synapse/admin/v1/user';
    const { redact_id: id } = await ok<{ redact_id: string }>(root, 'POST', `${admin}/${carol}/redact`, {
      rooms: [roomId],
    });
    const outcome = await eventually(async () => {
      const status = await ok<JsonObject>(root, 'GET', `${admin}/redact_status/${id}`);
      return status['status'] === 'complete' && status;
    });
    expect(outcome).toEqual({ status: 'complete', failed_redactions: {} });
    for (const { eventId } of spam) expect((await served(roomId, eventId)).content).toEqual({});
  });

  describe('of the event that began the room', () => {
    /** Looks at a room as its members do: it has its beginning, and of the redaction nothing is told. */
    const assertUntouched = async (
      roomId: string,
      created: JsonObject,
      redaction: string,
      last: string,
    ): Promise<void> => {
      await served(roomId, last);
      expect(await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.create`)).toEqual(created);
      const { chunk } = await ok<{ chunk: ServedEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
      const { rooms } = await ok<{ rooms: { join: Record<string, { timeline: { events: ServedEvent[] } }> } }>(
        alice,
        'GET',
        '/sync',
      );
      for (const list of [chunk, rooms.join[roomId]!.timeline.events]) {
        expect(list.map((event) => event.event_id)).toContain(last);
        expect(list.map((event) => event.type)).not.toContain('m.room.redaction');
      }
      expect((await alice.request('GET', `/rooms/${roomId}/event/${redaction}`)).status).toBe(404);
    };

    it.each(['2', '10', '12'])('counts for nothing, though its sender may redact (version %s)', async (version) => {
      const levels = { redact: 0 };
      const options = { preset: 'public_chat', room_version: version, power_level_content_override: levels };
      const roomId = await createRoom(alice, options);
      const created = await ok<JsonObject>(alice, 'GET', `/rooms/${roomId}/state/m.room.create`);
      expect(created['room_version']).toBe(version);
      const visit = await Visit.join(visitor, home, roomId, bob);
      const create = [...visit.state.values()].find((event) => event.type === 'm.room.create')!;
      const redaction = visit.next({ sender: bob, ...redactionOf(create.eventId, version) });
      const last = visit.message(bob, 'the last');
      expect(await visit.send(redaction, last)).toEqual({ [redaction.eventId]: {}, [last.eventId]: {} });
      await assertUntouched(roomId, created, redaction.eventId, last.eventId);
      await home.restart();
      await assertUntouched(roomId, created, redaction.eventId, last.eventId);
      // Others still come in, and are told of the same beginning.
      const other = await Visit.join(third, home, roomId, carol);
      const told = [...other.known.values()].find((event) => event.type === 'm.room.create');
      expect(told?.content).toEqual(create.content);
    });

    it('counts for nothing, though it comes from the same server (version 10)', async () => {
      const room = new ElsewhereRoom(visitor, '10');
      const create = room.events[0]!;
      room.add({ type: 'm.room.member', stateKey: bob, sender: bob, content: { membership: 'join' } });
      await ok(alice, 'POST', `/join/${room.roomId}?via=${visitor.name}`, {});
      const redaction = room.add({ ...redactionOf(create.eventId, '10'), sender: bob });
      const last = room.say('the last');
      const { status } = await sendTransaction(visitor, home, [redaction.pdu, last.pdu]);
      expect(status).toBe(200);
      await assertUntouched(room.roomId, create.content as JsonObject, redaction.eventId, last.eventId);
      await home.restart();
      await assertUntouched(room.roomId, create.content as JsonObject, redaction.eventId, last.eventId);
    });
  });

  it.each(['10', '12'])('counts for history that is fetched later (version %s)', async (version) => {
    const room = new ElsewhereRoom(visitor, version);
    const word = room.say('regretted long ago');
    for (let n = 0; n < 150; n++) room.say(`between ${n}`);
    room.add(redactionOf(word.eventId, version));
    await ok(alice, 'POST', `/join/${room.roomId}?via=${visitor.name}`, {});
    let from = '';
    const seen = new Map<string, ServedEvent>();
    for (let pages = 0; pages < 40 && !seen.has(word.eventId); pages++) {
      const path = `/rooms/${room.roomId}/messages?dir=b&limit=50${from}`;
      const { chunk, end } = await ok<{ chunk: ServedEvent[]; end?: string }>(alice, 'GET', path);
      for (const event of chunk) seen.set(event.event_id, event);
      if (end === undefined) break;
      from = `&from=${encodeURIComponent(end)}`;
    }
    expect(seen.get(word.eventId)?.content).toEqual({});
    await say(alice, room.roomId, 'and on');
  });
});
