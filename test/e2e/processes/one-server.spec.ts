import { MatrixError } from '@rookery/matrix-types';
import { Bus, type BusMessage, Rpc } from '@rookery/replication';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { requestProcess } from './ask-process.js';

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const slidingLists = {
  lists: { all: { ranges: [[0, 9]], timeline_limit: 5, required_state: [['m.room.member', '$LAZY']] } },
};

interface SlidingSync {
  readonly pos: string;
  readonly lists: Record<string, { readonly count: number }>;
  readonly rooms: Record<
    string,
    {
      readonly notification_count: number;
      readonly timeline: readonly { readonly event_id: string }[];
      readonly required_state: readonly { readonly type: string; readonly state_key: string }[];
    }
  >;
  readonly extensions: {
    readonly to_device?: {
      readonly next_batch: string;
      readonly events: readonly { readonly content: { n?: number } }[];
    };
  };
}

/** A PNG of one pixel. */
const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

interface Sync {
  readonly next_batch: string;
  readonly account_data?: { readonly events: readonly { readonly type: string; readonly content: { n?: number } }[] };
  readonly to_device?: { readonly events: readonly { readonly content: { n?: number } }[] };
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly timeline: { readonly events: readonly { readonly event_id: string }[] };
        readonly state: { readonly events: readonly object[] };
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
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 4, settings: { dynamic_thumbnails: true } },
    });
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
  const slidingSync = async (user: TestUser, pos: string | undefined, more: object = {}, timeoutMs = 0) => {
    const query = `?timeout=${timeoutMs}${pos === undefined ? '' : `&pos=${encodeURIComponent(pos)}`}`;
    const { status, body } = await user.request<SlidingSync>('POST', slidingPath + query, { ...slidingLists, ...more });
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
    const { next_batch } = await sync(bob);
    // Somebody's presence may come before.
    const hear = async (): Promise<readonly string[]> => {
      for (let since = next_batch; ;) {
        const answer = await sync(bob, `?since=${since}&timeout=30000`);
        since = answer.next_batch;
        const joined = answer.rooms?.join?.[roomId];
        if (joined && joined.timeline.events.length > 0) return joined.timeline.events.map((event) => event.event_id);
      }
    };
    const waits = Array.from({ length: 8 }, hear);
    const eventId = await send(alice, 'wakes');
    for (const heard of await Promise.all(waits)) expect(heard).toContain(eventId);
  });

  it('shows a sliding sync what was answered, once each and in order, and each member once', async () => {
    const begun = await slidingSync(bob, undefined, { extensions: { to_device: { enabled: true } } });
    const people = [alice, bob];
    for (const name of ['carol', 'dave']) {
      const user = await homeserver.registerUser(name);
      await user.request('POST', `/join/${encodeURIComponent(roomId)}`, {});
      people.push(user);
    }
    let { pos } = await slidingSync(bob, begun.pos);
    let since = begun.extensions.to_device?.next_batch;
    const [seen, sent, members, told]: [string[], string[], string[], unknown[]] = [[], [], [], []];
    for (let n = 1; n <= 24; n++) {
      sent.push(await send(people[n % people.length]!, `sliding${n}`));
      const messages = { [bob.userId]: { [bob.deviceId]: { n } } };
      await alice.request('PUT', `/sendToDevice/org.example.count/sliding${n}`, { messages });
      const answer = await slidingSync(bob, pos, { extensions: { to_device: { enabled: true, since } } });
      pos = answer.pos;
      since = answer.extensions.to_device?.next_batch;
      const shown = answer.rooms[roomId];
      seen.push(...(shown?.timeline ?? []).map((event) => event.event_id));
      expect(seen.at(-1)).toBe(sent.at(-1));
      members.push(...(shown?.required_state ?? []).map((event) => event.state_key));
      told.push(...(answer.extensions.to_device?.events ?? []).map(({ content }) => content.n));
    }
    expect(seen).toEqual(sent);
    expect(told).toEqual(Array.from({ length: 24 }, (_, index) => index + 1));
    expect(members).toEqual([...new Set(members)]);
  });

  it('tells the members of a room again that a sliding sync is told of anew', async () => {
    let { pos, rooms } = await slidingSync(bob, undefined);
    const first = rooms[roomId]?.required_state.map((event) => event.state_key);
    expect(first).toContain(alice.userId);
    for (let n = 1; n <= 8; n++) {
      // Out and in again: what the client had of the room is gone.
      await bob.request('POST', `${room}/leave`, {});
      ({ pos } = await slidingSync(bob, pos));
      await bob.request('POST', `/join/${encodeURIComponent(roomId)}`, {});
      await send(alice, `anew${n}`);
      ({ pos, rooms } = await slidingSync(bob, pos));
      expect(rooms[roomId]?.required_state.map((event) => event.state_key)).toContain(alice.userId);
    }
  });

  it('wakes a sliding sync that waits at another process, and answers one at once whose lists are others', async () => {
    let { pos } = await slidingSync(bob, undefined);
    const waits = Array.from({ length: 8 }, () => slidingSync(bob, pos, {}, 30_000));
    const eventId = await send(alice, 'wakes a sliding sync');
    const answers = await Promise.all(waits);
    for (const answer of answers)
      expect(answer.rooms[roomId]?.timeline.map((event) => event.event_id)).toEqual([eventId]);
    ({ pos } = answers.at(-1)!);
    for (let n = 0; n < 8; n++) {
      const isDm = n % 2 === 0;
      const lists = { all: { ...slidingLists.lists.all, filters: { is_dm: isDm } } };
      const answer = await slidingSync(bob, pos, { lists }, 600_000);
      expect(answer.lists['all']?.count).toBe(isDm ? 0 : 1);
      ({ pos } = answer);
    }
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

  it('lets a sync wait for whoever tells who is there and types, where that one cannot be asked', async () => {
    await alice.request('PUT', `${room}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    const rpc = homeserver.servers[1]!.service(Rpc);
    const call = rpc.call.bind(rpc);
    const away = new Set<string>();
    rpc.call = (method, request, instance) => {
      if (method.name !== 'typing_changes' && method.name !== 'presence_changes')
        return call(method, request, instance);
      away.add(method.name);
      return Promise.reject(new MatrixError(503, 'M_UNKNOWN', 'Nobody writes'));
    };
    try {
      for (const [method, path, body] of [
        ['GET', '/_matrix/client/v3/sync'],
        ['POST', slidingPath, { ...slidingLists, extensions: { typing: { enabled: true } } }],
      ] as const) {
        const answer = await requestProcess(homeserver, 1, bob, method, path, body);
        expect({ path, status: answer.status }).toEqual({ path, status: 200 });
        expect(await answer.text()).toContain('m.typing');
      }
      expect(away).toEqual(new Set(['typing_changes', 'presence_changes']));
    } finally {
      rpc.call = call;
    }
  });

  /** Something is done while one of the processes hears nothing of the others, as where it can ask nobody. */
  async function unheard(at: number, work: () => Promise<void>): Promise<void> {
    const bus = homeserver.servers[at]!.service(Bus) as Bus & { receive(message: BusMessage): void };
    const receive = bus.receive.bind(bus);
    const missed: BusMessage[] = [];
    bus.receive = (message) => void missed.push(message);
    try {
      await work();
    } finally {
      bus.receive = receive;
      for (const message of missed) receive(message);
    }
  }
  const ask = async <T>(at: number, user: TestUser, method: string, path: string, body?: object): Promise<T> => {
    const answer = await requestProcess(homeserver, at, user, method, path, body);
    expect({ at, path, status: answer.status }).toEqual({ at, path, status: 200 });
    return (await answer.json()) as T;
  };
  const syncPath = '/_matrix/client/v3/sync?timeout=0';

  it('does not take a token for lost that another process gave, where one has not heard how far everything is', () =>
    unheard(1, async () => {
      await send(alice, 'not heard of everywhere');
      const { next_batch: since } = await ask<Sync>(0, bob, 'GET', syncPath);
      const { rooms } = await ask<Sync>(1, bob, 'GET', `${syncPath}&since=${since}`);
      // Otherwise all of it is told anew.
      expect(rooms?.join?.[roomId]?.state.events ?? []).toEqual([]);
      const path = `${slidingPath}?timeout=0`;
      const { pos } = await ask<SlidingSync>(0, bob, 'POST', path, slidingLists);
      const next = await ask<SlidingSync>(1, bob, 'POST', `${path}&pos=${encodeURIComponent(pos)}`, slidingLists);
      expect(next.rooms[roomId]?.timeline ?? []).toEqual([]);
    }));

  it('tells whose keys have changed up to a token that another process gave', () =>
    unheard(1, async () => {
      const { next_batch: from } = await ask<Sync>(0, bob, 'GET', syncPath);
      const { userId, deviceId } = alice;
      await ask(0, alice, 'POST', '/_matrix/client/v3/keys/upload', {
        device_keys: {
          ...{ user_id: userId, device_id: deviceId, algorithms: ['m.olm.v1.curve25519-aes-sha2'], signatures: {} },
          keys: { [`ed25519:${deviceId}`]: 'ed', [`curve25519:${deviceId}`]: 'cu' },
        },
      });
      const { next_batch: to } = await ask<Sync>(0, bob, 'GET', syncPath);
      const path = `/_matrix/client/v3/keys/changes?from=${from}&to=${to}`;
      expect((await ask<{ changed: string[] }>(1, bob, 'GET', path)).changed).toEqual([userId]);
    }));

  it('answers what only reads in any of them, as soon as it was written, and while none writes', async () => {
    const eventId = await send(alice, 'to be read everywhere');
    await alice.request('PUT', `/user/${alice.userId}/account_data/org.example.read`, { n: 1 });
    const uploaded = await fetch(`${homeserver.baseUrl}/_matrix/media/v3/upload?filename=a.txt`, {
      method: 'POST',
      headers: { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'text/plain' },
      body: 'a file',
    });
    const { content_uri: uri } = (await uploaded.json()) as { content_uri: string };
    const image = await fetch(`${homeserver.baseUrl}/_matrix/media/v3/upload?filename=a.png`, {
      method: 'POST',
      headers: { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'image/png' },
      body: Buffer.from(pixel, 'base64'),
    });
    const { content_uri: imageUri } = (await image.json()) as { content_uri: string };
    const rule = '/pushrules/global/room/' + encodeURIComponent(roomId);
    await alice.request('PUT', rule, { actions: ['dont_notify'] });
    const event = encodeURIComponent(eventId);
    const reads = [
      ['GET', `${room}/messages?dir=b&limit=1`, eventId],
      ['GET', `${room}/event/${event}`, eventId],
      ['GET', `${room}/context/${event}?limit=2`, eventId],
      ['GET', `${room}/state`, roomId],
      ['GET', `${room}/state/m.room.create`, 'room_version'],
      ['GET', `${room}/members`, bob.userId],
      ['GET', `${room}/joined_members`, bob.userId],
      ['GET', '/joined_rooms', roomId],
      ['GET', `/_matrix/client/v1${room}/relations/${event}`, 'chunk'],
      ['GET', `/_matrix/client/v1${room}/threads`, 'chunk'],
      ['GET', `/_matrix/client/v1${room}/timestamp_to_event?ts=0`, 'event_id'],
      ['GET', `/user/${alice.userId}/account_data/org.example.read`, '"n"'],
      ['POST', '/keys/query', bob.userId, { device_keys: { [bob.userId]: [] } }],
      ['GET', `/_matrix/client/v1/media/download/${uri.slice('mxc://'.length)}`, 'a file'],
      ['GET', '/account/whoami', alice.userId],
      ['GET', `/profile/${alice.userId}`, 'alice'],
      ['GET', `/profile/${alice.userId}/displayname`, 'alice'],
      ['POST', slidingPath, eventId, slidingLists],
      ['GET', '/pushrules/', roomId],
      ['GET', '/pushrules/global/room', roomId],
      ['GET', rule, roomId],
      ['GET', `${rule}/enabled`, 'true'],
      ['GET', `${rule}/actions`, 'actions'],
    ] as const;
    let sizePx = 1;
    const readAt = async (at: number): Promise<void> => {
      // A size that nobody had before: it is made where it is asked for.
      sizePx += 1;
      const size = `width=${sizePx}&height=${sizePx}&method=scale`;
      const thumbnail = `/_matrix/client/v1/media/thumbnail/${imageUri.slice('mxc://'.length)}?${size}`;
      for (const [method, path, part, body] of [...reads, ['GET', thumbnail, 'PNG'] as const]) {
        const whole = path.startsWith('/_') ? path : `/_matrix/client/v3${path}`;
        const answer = await requestProcess(homeserver, at, alice, method, whole, body);
        const text = await answer.text();
        expect({ path, status: answer.status, has: text.includes(part) }).toEqual({ path, status: 200, has: true });
      }
    };
    for (const at of [0, 1, 2, 3]) await readAt(at);
    // Nobody is left to whom something could be passed on.
    await homeserver.servers[0]!.stop();
    for (const at of [1, 2, 3]) await readAt(at);
  });
});
