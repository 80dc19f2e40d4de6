import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

/** Any process answers for profiles of this server; those of others are asked for by the one that writes. */
describe.each([1, 3])('A limit of a server of %d processes', (processes) => {
  const burst = 6;
  let homeserver: TestHomeserver;

  beforeAll(async () => {
    const settings = { rc_profile: { per_second: 0.0001, burst_count: burst } };
    homeserver = await createTestHomeserver({ database: 'postgres', processes, settings });
  });
  afterAll(() => homeserver?.stop());

  /** The statuses of more requests than are allowed, each at one of the processes by chance; sorted. */
  const statuses = async (user: TestUser, path: string): Promise<number[]> => {
    const found: number[] = [];
    for (let n = 0; n < 4 * burst; n++) found.push((await user.request('GET', path)).status);
    return found.toSorted((a, b) => a - b);
  };

  it('is the same whichever process answers', async () => {
    const alice = await homeserver.registerUser('alice');
    const expected = [...Array<number>(burst).fill(200), ...Array<number>(3 * burst).fill(429)];
    expect(await statuses(alice, `/profile/${alice.userId}`)).toEqual(expected);
  });

  it('counts a request once that one process passes on to another', async () => {
    const bob = await homeserver.registerUser('bob');
    const found = await statuses(bob, '/profile/@somebody:127.0.0.1:1');
    expect(found.filter((status) => status !== 429).length).toBe(burst);
  });
});
