import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

type Counts = [notify: number, highlight: number];
interface Sync {
  readonly rooms: {
    readonly join: Record<string, { unread_notifications: { notification_count: number; highlight_count: number } }>;
  };
}

let txn = 0;

describe.each(['sqlite', 'postgres'] as const)('mentions of clients that do not list them (%s)', (kind) => {
  let server: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;
  let roomId: string;

  beforeAll(async () => {
    server = await createTestHomeserver({ database: kind });
    [alice, bob, carol] = (await Promise.all(['alice', 'bob.b', 'carol'].map((name) => server.registerUser(name)))) as [
      TestUser,
      TestUser,
      TestUser,
    ];
    await ok(bob, 'PUT', `/profile/${bob.userId}/displayname`, { displayname: 'Bob (the *)' });
    await ok(carol, 'PUT', `/profile/${carol.userId}/displayname`, { displayname: 'Карола' });
  });
  afterAll(() => server.stop());

  beforeEach(async () => {
    roomId = (await ok(alice, 'POST', '/createRoom', { preset: 'public_chat' }))['room_id'] as string;
    for (const user of [bob, carol]) await ok(user, 'POST', `/rooms/${roomId}/join`, {});
  });

  async function ok(user: TestUser, method: string, path: string, content?: object): Promise<Record<string, unknown>> {
    const { status, body } = await user.request<Record<string, unknown>>(method, path, content);
    expect([status, body]).toEqual([200, expect.anything()]);
    return body;
  }
  const send = async (body: string, more: object = {}, by = alice): Promise<string> => {
    const path = `/rooms/${roomId}/send/m.room.message/${txn++}`;
    return (await ok(by, 'PUT', path, { msgtype: 'm.text', body, ...more }))['event_id'] as string;
  };
  const counts = async (user: TestUser): Promise<Counts> => {
    const { rooms } = (await ok(user, 'GET', '/sync?full_state=true')) as unknown as Sync;
    const { notification_count: notify, highlight_count: highlight } = rooms.join[roomId]!.unread_notifications;
    return [notify, highlight];
  };

  it('are told by the display name, and by the name of the account', async () => {
    await send('hello bob (the *), how are you');
    expect([await counts(bob), await counts(carol)]).toEqual([
      [1, 1],
      [1, 0],
    ]);
    await send('Привет Карола, is BOB.B there?');
    expect([await counts(bob), await counts(carol)]).toEqual([
      [2, 2],
      [2, 1],
    ]);
    await send('carola, bobby, bob the');
    expect([await counts(bob), await counts(carol)]).toEqual([
      [3, 2],
      [3, 1],
    ]);
  });

  it('are none in a message that lists its own, nor of oneself', async () => {
    await send('bob (the *) and carol', { 'm.mentions': {} });
    await send('bob (the *) and carol', { 'm.mentions': { user_ids: [carol.userId] } });
    expect([await counts(bob), await counts(carol)]).toEqual([
      [2, 0],
      [2, 1],
    ]);
    await send('I, carol, am here', {}, carol);
    expect(await counts(carol)).toEqual([0, 0]);
  });

  it('mention the room where the sender may', async () => {
    await send('@room, come');
    expect([await counts(bob), await counts(carol)]).toEqual([
      [1, 1],
      [1, 1],
    ]);
    await send('@room, come', {}, bob);
    expect(await counts(carol)).toEqual([2, 1]);
  });

  it('follow names that change, and members that come and go', async () => {
    await send('nobody is Robert');
    await ok(bob, 'PUT', `/rooms/${roomId}/state/m.room.member/${encodeURIComponent(bob.userId)}`, {
      membership: 'join',
      displayname: 'Robert',
    });
    await send('robert, not bob (the *)');
    expect(await counts(bob)).toEqual([2, 1]);
    await send('bob (the *)');
    expect(await counts(bob)).toEqual([3, 1]);
    const dan = await server.registerUser(`dan${txn++}`);
    await ok(dan, 'POST', `/rooms/${roomId}/join`, {});
    const [name] = dan.userId.slice(1).split(':');
    await send(`and ${name}?`);
    expect(await counts(dan)).toEqual([1, 1]);
    await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
    await send('robert is gone');
    await server.restart();
    await ok(bob, 'POST', `/rooms/${roomId}/join`, {});
    await send('Bob (the *) is back');
    expect(await counts(bob)).toEqual([1, 1]);
  });

  it('can be switched off by who does not want them', async () => {
    const rule = '/pushrules/global/override/.m.rule.contains_display_name/enabled';
    await ok(bob, 'PUT', rule, { enabled: false });
    await send('bob (the *)');
    expect(await counts(bob)).toEqual([1, 0]);
    await send('bob.b');
    expect(await counts(bob)).toEqual([2, 1]);
    await ok(bob, 'PUT', rule, { enabled: true });
  });

  it('are only those that are listed where the server has no other rules', async () => {
    const settings = { experimental_features: { msc4210_enabled: true } };
    const strict = await createTestHomeserver({ database: kind, settings });
    try {
      const user = await strict.registerUser('eve');
      const rules = await ok(user, 'GET', '/pushrules/');
      expect(JSON.stringify(rules)).not.toMatch(/contains_|roomnotif/);
      expect(JSON.stringify(rules)).toMatch(/is_user_mention/);
    } finally {
      await strict.stop();
    }
  });

  it('find actions that are no more as they were stored, and these do nothing', async () => {
    await ok(bob, 'PUT', `/pushrules/global/sender/${alice.userId}`, { actions: ['dont_notify'] });
    const rule = await ok(bob, 'GET', `/pushrules/global/sender/${alice.userId}`);
    expect(rule['actions']).toEqual(['dont_notify']);
    await send('hello');
    expect(await counts(bob)).toEqual([0, 0]);
    await ok(bob, 'DELETE', `/pushrules/global/sender/${alice.userId}`);
  });
});
