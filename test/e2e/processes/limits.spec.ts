import { Streams } from '@rookery/replication';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { requestProcess } from './ask-process.js';

/** Any process answers for profiles of this server; those of others are asked for by the one that writes. */
describe.each([1, 3])('A limit of a server of %d processes', (processes) => {
  const burst = 6;
  let homeserver: TestHomeserver;

  beforeAll(async () => {
    const limit = { per_second: 0.0001, burst_count: burst };
    const settings = { rc_profile: limit, rc_key_requests: limit };
    homeserver = await createTestHomeserver({ database: 'postgres', processes, settings });
  });
  afterAll(() => homeserver?.stop());

  /** The statuses of more requests than are allowed, sorted. */
  const statusesOf = async (request: (n: number) => Promise<{ readonly status: number }>): Promise<number[]> => {
    const found: number[] = [];
    for (let n = 0; n < 4 * burst; n++) found.push((await request(n)).status);
    return found.toSorted((a, b) => a - b);
  };
  /** Each at one of the processes by chance. */
  const statuses = (user: TestUser, path: string): Promise<number[]> => statusesOf(() => user.request('GET', path));
  const expected = [...Array<number>(burst).fill(200), ...Array<number>(3 * burst).fill(429)];

  it('is the same whichever process answers', async () => {
    const alice = await homeserver.registerUser('alice');
    expect(await statuses(alice, `/profile/${alice.userId}`)).toEqual(expected);
  });

  it('counts a request once that one process passes on to another', async () => {
    const bob = await homeserver.registerUser('bob');
    const found = await statuses(bob, '/profile/@somebody:127.0.0.1:1');
    expect(found.filter((status) => status !== 429).length).toBe(burst);
  });

  it('counts a request once that a process passes on since it could tell nobody of what it writes', async () => {
    const carol = await homeserver.registerUser('carol');
    const messages = { [carol.userId]: { [carol.deviceId]: {} } };
    const writers = homeserver.servers.slice(1).map((server) => server.service(Streams).writers);
    for (const one of writers) Object.defineProperty(one, 'mayShare', { value: false, configurable: true });
    try {
      const found = await statusesOf((n) =>
        requestProcess(
          ...([homeserver, n % processes, carol, 'PUT'] as const),
          `/_matrix/client/v3/sendToDevice/m.room_key_request/n${n}`,
          { messages },
        ),
      );
      expect(found).toEqual(expected);
    } finally {
      for (const one of writers) Reflect.deleteProperty(one, 'mayShare');
    }
  });
});
