import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { get } from 'node:http';
import { createRoom, databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';

const roomCount = 1_500;

interface Joined {
  readonly timeline: { readonly events: readonly WireEvent[] };
  readonly state: { readonly events: readonly WireEvent[] };
}

interface Answer {
  readonly next_batch: string;
  readonly rooms?: { readonly join?: Readonly<Record<string, Joined>> };
}

describe.each(databases)('an account with many rooms (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  const roomIds: string[] = [];
  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database });
    alice = await homeserver.registerUser('alice');
    const bob = await homeserver.registerUser('bob');
    const lane = async (): Promise<void> => {
      while (roomIds.length < roomCount) {
        const place = roomIds.push('') - 1;
        roomIds[place] = await createRoom(alice, { preset: 'public_chat' });
      }
    };
    await Promise.all(Array.from({ length: 8 }, lane));
    await ok(bob, 'POST', `/join/${roomIds[0]}`, {});
    for (let n = 0; n < 25; n++) await say(bob, roomIds[0]!, `word ${n}`);
  }, 180_000);
  afterAll(() => homeserver?.stop());

  const filter = encodeURIComponent(
    JSON.stringify({ room: { state: { lazy_load_members: true }, timeline: { limit: 5 } } }),
  );
  const sync = (query: string): Promise<Answer> => ok<Answer>(alice, 'GET', `/sync?filter=${filter}&${query}`);
  const whole = (answer: Answer): void => {
    const joined = answer.rooms?.join ?? {};
    expect(Object.keys(joined).toSorted()).toEqual(roomIds.toSorted());
    for (const room of Object.values(joined)) expect(room.timeline.events.length).toBeGreaterThan(0);
    // Whoever speaks is shown, though answers that brought them were begun before.
    const senders = joined[roomIds[0]!]!.state.events.map((event) => event.state_key);
    expect(senders).toEqual(expect.arrayContaining(['@alice:rookery.test', '@bob:rookery.test']));
  };

  /** Asks for everything and hangs up: at once, or in the middle of the answer. Gives what had arrived, bytes. */
  const breakOff = (afterBytes: number): Promise<number> =>
    new Promise((resolve, reject) => {
      const url = `${homeserver.baseUrl}/_matrix/client/v3/sync?filter=${filter}`;
      const headers = { authorization: `Bearer ${alice.accessToken}` };
      const request = get(url, { headers, agent: false }, (response) => {
        let arrived = 0;
        response.on('data', (chunk: Buffer) => {
          arrived += chunk.length;
          if (arrived >= afterBytes) response.destroy();
        });
        response.on('close', () => resolve(arrived));
        response.on('error', () => undefined);
      });
      request.on('error', (error) => (afterBytes === 0 ? resolve(0) : reject(error)));
      if (afterBytes === 0)
        request.on('socket', (socket) => socket.once('connect', () => setImmediate(() => request.destroy())));
    });

  it('is told everything, however often the connection breaks before', async () => {
    for (const afterBytes of [0, 0, 0, 1, 100_000])
      expect(await breakOff(afterBytes)).toBeGreaterThanOrEqual(afterBytes);
    const first = await sync('timeout=0');
    whole(first);
    expect((await sync(`timeout=0&since=${first.next_batch}`)).rooms).toBeUndefined();
    // All of them at once, and somebody hangs up among them.
    const answers = [sync('timeout=0'), sync('timeout=0'), sync('timeout=0')];
    await breakOff(1);
    for (const answer of await Promise.all(answers)) whole(answer);
  });

  it('is told what happened since, whatever was begun after', async () => {
    const { next_batch: since } = await sync('timeout=0');
    await breakOff(100_000);
    const target = roomIds[700]!;
    const eventId = await say(alice, target, 'news');
    const news = await eventually(async () => {
      const { rooms } = await sync(`timeout=0&since=${since}`);
      return rooms?.join?.[target] && rooms.join;
    });
    expect(Object.keys(news)).toEqual([target]);
    expect(news[target]!.timeline.events.map((event) => event.event_id)).toEqual([eventId]);
  });
});
