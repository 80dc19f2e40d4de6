import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

interface Sync {
  readonly next_batch: string;
  readonly account_data?: { readonly events: readonly { readonly type: string; readonly content: { n?: number } }[] };
  readonly to_device?: { readonly events: readonly { readonly content: { n?: number } }[] };
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly timeline: { readonly events: readonly { readonly event_id: string }[] };
        readonly ephemeral: { readonly events: readonly { readonly type: string; readonly content: object }[] };
        readonly unread_notifications: { readonly notification_count: number };
      }
    >;
    readonly leave?: Record<string, unknown>;
  };
}

describe('a server of several processes, each request at one of them by chance', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let room: string;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database: 'postgres', processes: 4 });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    roomId = created.body.room_id;
    room = `/rooms/${encodeURIComponent(roomId)}`;
    expect((await bob.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).status).toBe(200);
  });
  afterAll(() => homeserver?.stop());

  const sync = async (user: TestUser, query = ''): Promise<Sync> => {
    const { status, body } = await user.request<Sync>('GET', `/sync${query}`);
    expect(status).toBe(200);
    return body;
  };
  const send = async (user: TestUser, txnId: string): Promise<string> => {
    const content = { msgtype: 'm.text', body: txnId };
    const { status, body } = await user.request<{ event_id: string }>(
      'PUT',
      `${room}/send/m.room.message/${txnId}`,
      content,
    );
    expect(status).toBe(200);
    return body.event_id;
  };

  it('shows what was answered, once each and in order, and counts it', async () => {
    let { next_batch: since } = await sync(bob);
    const seen: string[] = [];
    const sent: string[] = [];
    for (let n = 1; n <= 30; n++) {
      sent.push(await send(alice, `message${n}`));
      const answer = await sync(bob, `?since=${since}`);
      since = answer.next_batch;
      const joined = answer.rooms?.join?.[roomId];
      seen.push(...(joined?.timeline.events ?? []).map((event) => event.event_id));
      expect(seen.at(-1)).toBe(sent.at(-1));
      expect(joined?.unread_notifications.notification_count).toBe(n);
    }
    expect(seen).toEqual(sent);
  });

  it('wakes a sync that waits at another process, and leaves one without news alone', async () => {
    const { next_batch: since } = await sync(bob);
    const waits = Array.from({ length: 8 }, () => sync(bob, `?since=${since}&timeout=30000`));
    const eventId = await send(alice, 'wakes');
    for (const answer of await Promise.all(waits))
      expect(answer.rooms?.join?.[roomId]?.timeline.events.map((event) => event.event_id)).toContain(eventId);
  });

  it('sends one event for a transaction, however often it is repeated', async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, () => send(alice, 'repeated')));
    expect(new Set(ids).size).toBe(1);
  });

  it('shows account data, messages to devices and who types', async () => {
    let { next_batch: since } = await sync(bob);
    for (let n = 1; n <= 10; n++) {
      await bob.request('PUT', `/user/${bob.userId}/account_data/org.example.count`, { n });
      const messages = { [bob.userId]: { [bob.deviceId]: { n } } };
      await alice.request('PUT', `/sendToDevice/org.example.count/n${n}`, { messages });
      await alice.request('PUT', `${room}/typing/${alice.userId}`, { typing: n % 2 === 1, timeout: 30_000 });
      const answer = await sync(bob, `?since=${since}`);
      since = answer.next_batch;
      const data = answer.account_data?.events.filter(({ type }) => type === 'org.example.count');
      expect(data?.map(({ content }) => content.n)).toEqual([n]);
      expect(answer.to_device?.events.map(({ content }) => content.n)).toEqual([n]);
      expect(answer.rooms?.join?.[roomId]?.ephemeral.events).toEqual([
        { type: 'm.typing', content: { user_ids: n % 2 === 1 ? [alice.userId] : [] } },
      ]);
    }
  });

  it('shows nobody a room that they have just left, nor one whose token has just ended anything', async () => {
    for (let n = 1; n <= 5; n++) {
      const name = `guest${n}`;
      const guest = await homeserver.registerUser(name);
      await guest.request('POST', `/join/${encodeURIComponent(roomId)}`, {});
      const first = await sync(guest);
      expect(first.rooms?.join?.[roomId]).toBeDefined();
      await alice.request('POST', `${room}/kick`, { user_id: guest.userId });
      const next = await sync(guest, `?since=${first.next_batch}`);
      expect(next.rooms?.join?.[roomId]).toBeUndefined();
      expect(next.rooms?.leave?.[roomId]).toBeDefined();
      expect((await guest.request('POST', '/logout', {})).status).toBe(200);
      for (let i = 0; i < 6; i++) expect((await guest.request('GET', '/sync')).status).toBe(401);
    }
  });
});
