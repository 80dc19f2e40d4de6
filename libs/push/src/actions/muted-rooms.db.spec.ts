import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

type Counts = [notify: number, highlight: number];
interface Sync {
  readonly rooms?: {
    readonly join?: Record<string, { unread_notifications: { notification_count: number; highlight_count: number } }>;
  };
}

let txn = 0;

describe.each(['sqlite', 'postgres'] as const)('rooms that members have muted (%s)', (kind) => {
  let server: TestHomeserver;
  let database: Database;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;
  let dan: TestUser;
  let roomId: string;

  beforeAll(async () => {
    server = await createTestHomeserver({ database: kind });
    database = server.server.service(Database);
    alice = await server.registerUser('alice');
  });
  afterAll(() => server.stop());

  let round = 0;
  beforeEach(async () => {
    round++;
    [bob, carol, dan] = (await Promise.all(
      ['bob', 'carol', 'dan'].map((name) => server.registerUser(`${name}${round}`)),
    )) as [TestUser, TestUser, TestUser];
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    roomId = body.room_id;
    for (const user of [bob, carol, dan]) await ok(user, 'POST', `/rooms/${roomId}/join`, {});
  });

  async function ok(user: TestUser, method: string, path: string, content?: object): Promise<Record<string, unknown>> {
    const { status, body } = await user.request<Record<string, unknown>>(method, path, content);
    expect([status, body]).toEqual([200, expect.anything()]);
    return body;
  }
  const send = async (user: TestUser, more: object = {}): Promise<string> => {
    const content = { msgtype: 'm.text', body: 'hello', ...more };
    const path = `/rooms/${roomId}/send/m.room.message/${txn++}`;
    return (await ok(user, 'PUT', path, content))['event_id'] as string;
  };
  const mention = (...users: TestUser[]): object => ({ 'm.mentions': { user_ids: users.map((user) => user.userId) } });
  const byRoomRule = (user: TestUser, actions: unknown[] = []): Promise<unknown> =>
    ok(user, 'PUT', `/pushrules/global/room/${roomId}`, { actions });
  const byOverride = (user: TestUser, ruleId = roomId): Promise<unknown> =>
    ok(user, 'PUT', `/pushrules/global/override/${ruleId}`, {
      actions: [],
      conditions: [{ kind: 'event_match', key: 'room_id', pattern: roomId }],
    });
  const unmute = (user: TestUser): Promise<unknown> => ok(user, 'DELETE', `/pushrules/global/room/${roomId}`);
  const counts = async (user: TestUser): Promise<Counts> => {
    const answer = (await ok(user, 'GET', '/sync?full_state=true')) as Sync;
    const { notification_count: notify, highlight_count: highlight } =
      answer.rooms!.join![roomId]!.unread_notifications;
    return [notify, highlight];
  };
  /** From memory and, after a restart, from the tables. */
  const expectCounts = async (expected: readonly (readonly [TestUser, Counts])[]): Promise<void> => {
    const all = (): Promise<Counts[]> => Promise.all(expected.map(([user]) => counts(user)));
    expect(await all()).toEqual(expected.map(([, each]) => each));
    await restart();
    expect(await all()).toEqual(expected.map(([, each]) => each));
  };
  const restart = async (): Promise<void> => {
    await server.restart();
    database = server.server.service(Database);
  };
  const exceptions = async (): Promise<(string[] | null)[]> => {
    const rows = await database.query<{ push_except: string | null }>(
      `SELECT push_except FROM events WHERE room_id = ? AND type = 'm.room.message' ORDER BY stream_ordering`,
      [roomId],
    );
    return rows.map((row) => (row.push_except === null ? null : (JSON.parse(row.push_except) as string[]).toSorted()));
  };
  const groups = (): Promise<{ user_id: string; until: number | null }[]> =>
    database.query('SELECT user_id, until FROM push_rule_groups WHERE room_id = ? ORDER BY user_id, since', [roomId]);
  const listed = async (user: TestUser): Promise<string[]> => {
    const page = (await ok(user, 'GET', '/notifications')) as { notifications: { event: { event_id: string } }[] };
    return page.notifications.map((one) => one.event.event_id);
  };

  it('count nothing for these members, and messages name none of them', async () => {
    await byRoomRule(bob);
    await byOverride(carol);
    await byOverride(dan, 'called.otherwise');
    await send(alice);
    await send(alice);
    const [first, second] = await exceptions();
    expect(first).toEqual([expect.stringMatching(/^#/), expect.stringMatching(/^#/)]);
    expect(second).toEqual(first);
    expect((await groups()).map((row) => row.until)).toEqual([null, null, null]);
    await expectCounts([
      [bob, [0, 0]],
      [carol, [0, 0]],
      [dan, [0, 0]],
    ]);
    // Known from before the restart, and from memory again.
    await send(alice);
    await expectCounts([
      [bob, [0, 0]],
      [dan, [0, 0]],
    ]);
    expect((await exceptions())[2]).toEqual(first);
    expect(await groups()).toHaveLength(3);
  });

  it('tell of mentions all the same where only the room rule is quiet', async () => {
    await byRoomRule(bob);
    await byOverride(carol);
    await expectCounts([[bob, [0, 0]]]);
    await send(alice, mention(bob, carol, dan));
    await send(alice);
    await expectCounts([
      [bob, [1, 1]],
      [carol, [0, 0]],
      [dan, [2, 1]],
    ]);
    await ok(alice, 'PUT', `/rooms/${roomId}/send/m.room.message/${txn++}`, {
      msgtype: 'm.text',
      body: 'everybody',
      'm.mentions': { room: true },
    });
    await expectCounts([
      [bob, [2, 2]],
      [carol, [0, 0]],
      [dan, [3, 2]],
    ]);
  });

  it('are muted from one message to the next', async () => {
    await counts(bob);
    const first = await send(alice);
    await byRoomRule(bob);
    expect(await counts(bob)).toEqual([1, 0]);
    await send(alice);
    expect(await counts(bob)).toEqual([1, 0]);
    await unmute(bob);
    const third = await send(alice);
    expect(await counts(bob)).toEqual([2, 0]);
    await byRoomRule(bob);
    await send(alice);
    await byRoomRule(carol);
    await send(dan);
    await expectCounts([
      [alice, [1, 0]],
      [bob, [2, 0]],
      [carol, [4, 0]],
      // Has read what is before the own message.
      [dan, [0, 0]],
    ]);
    expect(await listed(bob)).toEqual([third, first]);
  });

  it('cost nothing where nobody muted them, and nothing any more where nobody does', async () => {
    await send(alice);
    await byRoomRule(bob);
    await unmute(bob);
    await send(alice);
    expect(await exceptions()).toEqual([null, null]);
    expect(await groups()).toEqual([]);
    await byRoomRule(bob);
    await send(alice);
    await unmute(bob);
    await send(alice);
    expect(await exceptions()).toEqual([null, null, [expect.stringMatching(/^#/)], null]);
    await expectCounts([[bob, [3, 0]]]);
  });

  it('forget a redacted message, for those who were told and those who were not', async () => {
    await byRoomRule(bob);
    const told = await send(alice, mention(bob));
    const untold = await send(alice);
    expect([await counts(bob), await counts(carol)]).toEqual([
      [1, 1],
      [2, 0],
    ]);
    for (const eventId of [told, untold]) await ok(alice, 'PUT', `/rooms/${roomId}/redact/${eventId}/${txn++}`, {});
    await expectCounts([
      [bob, [0, 0]],
      [carol, [0, 0]],
    ]);
  });

  it('stay muted for who leaves and joins again, until that changes', async () => {
    await byRoomRule(bob);
    await send(alice);
    await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
    await send(alice);
    await ok(bob, 'POST', `/rooms/${roomId}/join`, {});
    await send(alice);
    expect(await counts(bob)).toEqual([0, 0]);
    await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
    await unmute(bob);
    await send(alice);
    await ok(bob, 'POST', `/rooms/${roomId}/join`, {});
    await send(alice);
    await expectCounts([[bob, [1, 0]]]);
  });

  it('and ignored senders do not get in each other’s way', async () => {
    await byRoomRule(bob);
    const ignore = (users: TestUser[]): Promise<unknown> =>
      ok(bob, 'PUT', `/user/${bob.userId}/account_data/m.ignored_user_list`, {
        ignored_users: Object.fromEntries(users.map((user) => [user.userId, {}])),
      });
    await counts(bob);
    await ignore([alice]);
    await send(alice, mention(bob));
    await send(carol, mention(bob));
    expect(await counts(bob)).toEqual([1, 1]);
    await ignore([]);
    await unmute(bob);
    await send(alice);
    await expectCounts([[bob, [2, 1]]]);
  });

  it('are told of as their members wish, if these wish something else than nothing', async () => {
    const loud = ['notify', { set_tweak: 'sound', value: 'default' }];
    await byRoomRule(bob, loud);
    await byRoomRule(carol, loud);
    await expectCounts([[bob, [0, 0]]]);
    await send(alice);
    await send(bob);
    await ok(alice, 'PUT', `/rooms/${roomId}/send/org.example/${txn++}`, {});
    await expectCounts([
      // Has read what is before the own message.
      [bob, [1, 0]],
      [carol, [3, 0]],
      [dan, [2, 0]],
    ]);
    expect((await exceptions()).flat()).toEqual(Array.from({ length: 2 }, (): unknown => expect.stringMatching(/^#/)));
  });

  it('are muted by the rules that are on, whatever others are called', async () => {
    await byOverride(bob);
    await byRoomRule(bob);
    await ok(bob, 'PUT', `/pushrules/global/override/${roomId}/enabled`, { enabled: false });
    const rule = await ok(bob, 'GET', `/pushrules/global/room/${roomId}`);
    expect(rule).toMatchObject({ enabled: true });
    await send(alice, mention(bob));
    await send(alice);
    await expectCounts([[bob, [1, 1]]]);
    await ok(bob, 'PUT', `/pushrules/global/room/${roomId}/enabled`, { enabled: false });
    await send(alice);
    await expectCounts([[bob, [2, 1]]]);
  });
});
