import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { askProcess } from './ask-process.js';

interface Counts {
  readonly notification_count: number;
  readonly highlight_count: number;
}
interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<
      string,
      { readonly timeline: { readonly events: readonly object[] }; readonly unread_notifications: Counts }
    >;
  };
}

const readers = 8;

/** What it costs a process that members of a room listen to it, and what it tells them. */
describe('Members of a room at a process that stores no events', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let members: TestUser[];
  let roomId: string;
  let txn = 0;
  const since = new Map<TestUser, string>();

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 2 },
      settings: { presence: { enabled: false } },
    });
    alice = await homeserver.registerUser('alice');
    members = [];
    for (let n = 0; n < readers; n++) members.push(await homeserver.registerUser(`reader${n}`));
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    roomId = created.body.room_id;
    for (const member of members) await member.request('POST', `/rooms/${encodeURIComponent(roomId)}/join`, {});
  });
  afterAll(() => homeserver?.stop());

  const ask = <T>(process: number, user: TestUser, method: string, path: string, body?: object): Promise<T> =>
    askProcess(homeserver, process, user, method, path, body);
  async function send(user: TestUser, content: object = {}): Promise<string> {
    const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${txn++}`;
    const body = { msgtype: 'm.text', body: 'hello', ...content };
    return (await ask<{ event_id: string }>(0, user, 'PUT', path, body)).event_id;
  }
  /** Waits until a user has events of the room at the second process. */
  async function hear(user: TestUser): Promise<[notify: number, highlight: number]> {
    for (;;) {
      const query = since.has(user) ? `?timeout=20000&since=${since.get(user)}` : '';
      const answer = await ask<Sync>(1, user, 'GET', `/sync${query}`);
      since.set(user, answer.next_batch);
      const room = answer.rooms?.join?.[roomId];
      if (room === undefined || room.timeline.events.length === 0) continue;
      return [room.unread_notifications.notification_count, room.unread_notifications.highlight_count];
    }
  }
  const unread = (user: TestUser): Promise<[notify: number, highlight: number]> => {
    since.delete(user);
    return hear(user);
  };

  /** How often the second process asks the database about a room or a message while some hear of that. */
  async function queriesFor(users: readonly TestUser[]): Promise<number> {
    for (const user of users) await unread(user);
    const database = homeserver.servers[1]!.service(Database);
    const query = database.query.bind(database);
    const hearing = users.map((user) => hear(user));
    await new Promise((resolve) => setTimeout(resolve, 300));
    const asked: string[] = [];
    database.query = ((...args: Parameters<typeof query>) => {
      asked.push(JSON.stringify(args[1]));
      return query(...args);
    }) as typeof database.query;
    try {
      const eventId = await send(alice);
      await Promise.all(hearing);
      return asked.filter((params) => params.includes(roomId) || params.includes(eventId)).length;
    } finally {
      database.query = query;
    }
  }

  it('share what it asks the database about a message', async () => {
    await queriesFor(members);
    const two = await queriesFor(members.slice(0, 2));
    expect(two).toBeGreaterThan(0);
    // Less than one for each that comes to them.
    expect(await queriesFor(members)).toBeLessThan(two + readers - 2);
  });

  it('ask for a message together with what they are shown of it, and for how much is unread', async () => {
    await queriesFor(members.slice(0, 1));
    expect(await queriesFor(members.slice(0, 1))).toBe(2);
  });

  it('are told how much they have not read, as the tables say it', async () => {
    const [muted, named, chatty, reading, other] = members as [TestUser, TestUser, TestUser, TestUser, TestUser];
    const rule = `/pushrules/global/room/${encodeURIComponent(roomId)}`;
    await ask(0, muted, 'PUT', rule, { actions: [] });
    const before = new Map<TestUser, number>();
    for (const user of members) before.set(user, (await unread(user))[0]);
    const heard = (): Promise<[number, number][]> => Promise.all(members.map((user) => hear(user)));
    const more = (user: TestUser, notify: number, highlight: number): [number, number] => [
      before.get(user)! + notify,
      highlight,
    ];
    let hearing = heard();
    await send(alice, { 'm.mentions': { user_ids: [named.userId] } });
    const first = await hearing;
    expect(first[0]).toEqual(more(muted, 0, 0));
    expect(first[1]).toEqual(more(named, 1, 1));
    for (const n of [2, 3, 4]) expect(first[n]).toEqual(more(members[n]!, 1, 0));
    hearing = heard();
    const eventId = await send(chatty);
    const second = await hearing;
    expect(second[0]).toEqual(more(muted, 0, 0));
    expect(second[1]).toEqual(more(named, 2, 1));
    expect(second[2]).toEqual([0, 0]);
    expect(second[3]).toEqual(more(reading, 2, 0));
    await ask(0, reading, 'POST', `/rooms/${encodeURIComponent(roomId)}/receipt/m.read/${eventId}`, {});
    expect(await unread(reading)).toEqual([0, 0]);
    hearing = heard();
    const gone = await send(alice);
    const third = await hearing;
    expect(third[2]).toEqual([1, 0]);
    expect(third[3]).toEqual([1, 0]);
    expect(third[4]).toEqual(more(other, 3, 0));
    await ask(0, alice, 'PUT', `/rooms/${encodeURIComponent(roomId)}/redact/${gone}/t${txn++}`, {});
    expect(await unread(reading)).toEqual([0, 0]);
    expect(await unread(other)).toEqual(more(other, 2, 0));
    expect(await unread(named)).toEqual(more(named, 2, 1));
  });

  it('are shown what becomes of a message that they have heard of', async () => {
    const [reader] = members as [TestUser];
    const event = (eventId: string): Promise<{ content: object; unsigned: Record<string, unknown> }> =>
      ask(1, reader, 'GET', `/rooms/${encodeURIComponent(roomId)}/event/${eventId}`);
    await unread(reader);
    const sent: string[] = [];
    for (let n = 0; n < 3; n++) {
      const hearing = hear(reader);
      sent.push(await send(alice));
      await hearing;
    }
    const [root = '', gone = '', left = ''] = sent;
    expect((await event(root)).unsigned).not.toHaveProperty('m.relations');
    const reply = await send(alice, { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await ask(0, alice, 'PUT', `/rooms/${encodeURIComponent(roomId)}/redact/${gone}/t${txn++}`, {});
    expect((await event(root)).unsigned).toMatchObject({
      'm.relations': { 'm.thread': { count: 1, latest_event: { event_id: reply } } },
    });
    expect(await event(gone)).toMatchObject({ content: {}, unsigned: { redacted_because: { sender: alice.userId } } });
    expect((await event(left)).unsigned).not.toHaveProperty('m.relations');
  });

  it('are shown what became of a message before they heard of it', async () => {
    const [reader] = members as [TestUser];
    await unread(reader);
    const [root, gone] = [await send(alice), await send(alice)];
    const reply = await send(alice, { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await ask(0, alice, 'PUT', `/rooms/${encodeURIComponent(roomId)}/redact/${gone}/t${txn++}`, {});
    const answer = await ask<Sync>(1, reader, 'GET', `/sync?since=${since.get(reader)}`);
    expect(answer.rooms?.join?.[roomId]?.timeline.events).toMatchObject([
      { event_id: root, unsigned: { 'm.relations': { 'm.thread': { count: 1, latest_event: { event_id: reply } } } } },
      { event_id: gone, content: {}, unsigned: { redacted_because: { sender: alice.userId } } },
      { event_id: reply },
      { type: 'm.room.redaction' },
    ]);
  });
});
