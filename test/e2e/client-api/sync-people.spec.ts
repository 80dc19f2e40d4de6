import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface Sync {
  readonly next_batch: string;
  readonly presence?: { readonly events: { sender: string; content: { presence: string } }[] };
  readonly to_device?: { readonly events: { type: string; sender: string; content: { n?: number } }[] };
  readonly device_lists?: { readonly changed: string[]; readonly left: string[] };
  readonly device_one_time_keys_count?: Record<string, number>;
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly ephemeral: { readonly events: { type: string; content: Record<string, unknown> }[] };
        readonly unread_notifications: { notification_count: number; highlight_count: number };
        readonly unread_thread_notifications?: Record<string, { notification_count: number }>;
      }
    >;
  };
}

describe.each(['sqlite', 'postgres'] as const)('what people and devices do, in /sync (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let transaction = 0;

  const sync = async (user: TestUser, since?: string, query = ''): Promise<Sync> => {
    const { status, body } = await user.request<Sync>(
      'GET',
      `/sync?timeout=0${since === undefined ? '' : `&since=${since}`}${query}`,
    );
    expect({ status, body }).toMatchObject({ status: 200 });
    return body;
  };
  const send = async (user: TestUser, content: object): Promise<string> => {
    transaction += 1;
    const { status, body } = await user.request('PUT', `/rooms/${roomId}/send/m.room.message/${transaction}`, {
      msgtype: 'm.text',
      body: 'x',
      ...content,
    });
    expect(status).toBe(200);
    return String(body['event_id']);
  };
  const ephemeral = (answer: Sync, type: string): Record<string, unknown> | undefined =>
    answer.rooms?.join?.[roomId]?.ephemeral.events.find((event) => event.type === type)?.content;

  beforeAll(async () => {
    const settings = {
      rc_presence: { per_user: { per_second: 1_000, burst_count: 1_000 } },
      max_event_delay_duration: '1h',
    };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const made = await alice.request('POST', '/createRoom', { preset: 'private_chat', invite: [bob.userId] });
    roomId = String(made.body['room_id']);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
  });
  afterAll(() => homeserver?.stop());

  it('who types, and that they ceased', async () => {
    const { next_batch: since } = await sync(bob);
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    const typing = await sync(bob, since);
    expect(ephemeral(typing, 'm.typing')).toEqual({ user_ids: [alice.userId] });
    expect(ephemeral(await sync(bob), 'm.typing')).toEqual({ user_ids: [alice.userId] });
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: false });
    expect(ephemeral(await sync(bob, typing.next_batch), 'm.typing')).toEqual({ user_ids: [] });
  });

  it('what is unread, until it was read, and who read it', async () => {
    const { next_batch: since } = await sync(bob);
    await send(alice, {});
    const mention = await send(alice, { 'm.mentions': { user_ids: [bob.userId] } });
    const unread = await sync(bob, since);
    expect(unread.rooms?.join?.[roomId]?.unread_notifications).toEqual({ notification_count: 2, highlight_count: 1 });
    const { next_batch: alices } = await sync(alice);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${mention}`, {});
    const read = await sync(bob, unread.next_batch);
    expect(read.rooms?.join?.[roomId]?.unread_notifications).toEqual({ notification_count: 0, highlight_count: 0 });
    expect(ephemeral(await sync(alice, alices), 'm.receipt')).toMatchObject({
      [mention]: { 'm.read': { [bob.userId]: { ts: expect.any(Number) } } },
    });
  });

  it('private receipts to their owner only', async () => {
    const event = await send(alice, {});
    const [{ next_batch: alices }, { next_batch: bobs }] = await Promise.all([sync(alice), sync(bob)]);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read.private/${event}`, {});
    expect(ephemeral(await sync(bob, bobs), 'm.receipt')).toMatchObject({
      [event]: { 'm.read.private': { [bob.userId]: {} } },
    });
    expect(JSON.stringify(await sync(alice, alices))).not.toContain('m.read.private');
    expect(JSON.stringify(await sync(alice))).not.toContain('m.read.private');
  });

  it('what is unread in threads, where that is asked for', async () => {
    const root = await send(alice, {});
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${root}`, {});
    const { next_batch: since } = await sync(bob);
    await send(alice, { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { unread_thread_notifications: true } } }));
    const room = (await sync(bob, since, `&filter=${filter}`)).rooms?.join?.[roomId];
    expect(room?.unread_thread_notifications?.[root]?.notification_count).toBe(1);
    expect(room?.unread_notifications.notification_count).toBe(0);
    expect((await sync(bob, since)).rooms?.join?.[roomId]?.unread_notifications.notification_count).toBe(1);
  });

  it('whoever sends something is active, but not seen where they do not want to be', async () => {
    const status = `/presence/${alice.userId}/status`;
    const seen = async (): Promise<unknown> => (await bob.request('GET', status)).body['presence'];
    await alice.request('PUT', status, { presence: 'unavailable' });
    await eventually(async () => (await seen()) === 'unavailable');
    // Nobody is there when what was left to be sent is sent.
    const { next_batch: since } = await sync(alice, undefined, '&set_presence=offline');
    const later = `/rooms/${roomId}/send/m.room.message/later?org.matrix.msc4140.delay=50`;
    await alice.request('PUT', later, { msgtype: 'm.text', body: 'later' });
    await eventually(
      async () => (await sync(alice, since, '&set_presence=offline')).rooms?.join?.[roomId] !== undefined,
    );
    // Who comes by meanwhile is seen at once, with whatever was to be told before.
    await sync(bob, undefined, '&set_presence=unavailable');
    const ofBob = `/presence/${bob.userId}/status`;
    await eventually(async () => (await alice.request('GET', ofBob)).body['presence'] === 'unavailable');
    expect(await seen()).toBe('unavailable');
    await send(alice, {});
    await eventually(async () => (await seen()) === 'online');
    await alice.request('PUT', status, { presence: 'offline' });
    await eventually(async () => (await seen()) === 'offline');
    await send(alice, {});
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await sync(bob, undefined, '&set_presence=online');
    await eventually(async () => (await alice.request('GET', ofBob)).body['presence'] === 'online');
    expect(await seen()).toBe('offline');
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: false });
  });

  it('presence of somebody who shares a room comes with the sync', async () => {
    const { next_batch: since } = await sync(bob);
    await alice.request('PUT', `/presence/${alice.userId}/status`, { presence: 'unavailable', status_msg: 'away' });
    const seen = await eventually(async () => {
      const { presence } = await sync(bob, since);
      return presence?.events.find(
        (event) => event.sender === alice.userId && event.content.presence === 'unavailable',
      );
    });
    expect(seen.content).toMatchObject({ status_msg: 'away' });
  });

  it('messages to a device once each, over a restart as well', async () => {
    let { next_batch: since } = await sync(bob);
    const sendTo = async (n: number): Promise<void> => {
      const { status } = await alice.request('PUT', `/sendToDevice/org.example/${n}`, {
        messages: { [bob.userId]: { [bob.deviceId]: { n } } },
      });
      expect(status).toBe(200);
    };
    for (const n of [1, 2, 2, 3]) await sendTo(n + 1000 * transaction);
    const first = await sync(bob, since);
    const numbers = (answer: Sync): (number | undefined)[] =>
      (answer.to_device?.events ?? []).map((event) => event.content.n);
    expect(numbers(first)).toEqual([1, 2, 3].map((n) => n + 1000 * transaction));
    // The answer may have been lost: the same token gives the same messages.
    expect(numbers(await sync(bob, since))).toEqual(numbers(first));
    since = first.next_batch;
    await homeserver.restart();
    expect(numbers(await sync(bob, since))).toEqual([]);
    await sendTo(5 + 1000 * transaction);
    const last = await sync(bob, since);
    expect(numbers(last)).toEqual([5 + 1000 * transaction]);
    expect(numbers(await sync(bob, last.next_batch))).toEqual([]);
    expect(numbers(await sync(bob))).toEqual([]);
  });

  it('whose devices changed, and who need not be watched any more', async () => {
    const { next_batch: since } = await sync(bob);
    const key = {
      algorithms: [],
      device_id: alice.deviceId,
      user_id: alice.userId,
      keys: { [`ed25519:${alice.deviceId}`]: 'a2V5' },
      signatures: {},
    };
    expect((await alice.request('POST', '/keys/upload', { device_keys: key })).status).toBe(200);
    const changed = await sync(bob, since);
    expect(changed.device_lists).toEqual({ changed: [alice.userId], left: [] });
    expect((await sync(bob, changed.next_batch)).device_lists).toBeUndefined();
    await alice.request('POST', `/rooms/${roomId}/leave`, {});
    expect((await sync(bob, changed.next_batch)).device_lists).toEqual({ changed: [], left: [alice.userId] });
  });
});
