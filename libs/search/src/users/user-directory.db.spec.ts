import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

interface Results {
  readonly limited: boolean;
  readonly results: readonly {
    readonly user_id: string;
    readonly display_name: string | null;
    readonly avatar_url: string | null;
  }[];
}

describe.each(['sqlite', 'postgres'] as const)('user directory (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;

  const start = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const wide = { per_second: 1_000, burst_count: 1_000 };
    server = await createTestHomeserver({ database, settings: { rc_user_directory: wide, ...settings } });
    alice = await server.registerUser('alice');
  };
  afterEach(() => server.stop());

  const search = async (term: string, user = alice, limit?: number): Promise<Results> => {
    const { status, body } = await user.request<Results>('POST', '/user_directory/search', {
      search_term: term,
      limit,
    });
    expect(status).toBe(200);
    return body;
  };
  const ids = async (term: string, user = alice): Promise<string[]> =>
    (await search(term, user)).results.map((one) => one.user_id);
  const person = async (name: string, displayName?: string): Promise<TestUser> => {
    const user = await server.registerUser(name);
    if (displayName !== undefined)
      await user.request('PUT', `/profile/${user.userId}/displayname`, { displayname: displayName });
    return user;
  };
  const roomWith = async (preset: string, owner: TestUser, others: readonly TestUser[]): Promise<string> => {
    const { body } = await owner.request<{ room_id: string }>('POST', '/createRoom', {
      preset,
      invite: others.map((other) => other.userId),
    });
    for (const other of others) await other.request('POST', `/rooms/${body.room_id}/join`, {});
    return body.room_id;
  };

  it('finds people by parts of name and id, in any script', async () => {
    await start({ user_directory: { search_all_users: true } });
    const zoe = await person('zoe.smith', 'Zoë Ångström');
    const taro = await person('taro', '山田太郎');
    const olga = await person('olga', 'Ольга');
    for (const term of ['zoe', 'ZOË', 'ang', 'angstrom zoe', 'smith', zoe.userId, '@zoe'])
      expect(await ids(term)).toEqual([zoe.userId]);
    for (const term of ['山田', '太郎', '太', 'taro']) expect(await ids(term)).toEqual([taro.userId]);
    expect(await ids('ольга')).toEqual([olga.userId]);
    expect(await ids('nobody')).toEqual([]);
    expect(await ids('')).toEqual([]);
    expect(await ids('alice')).toEqual([]);
    expect(await ids('\0ta\0ro\0')).toEqual([taro.userId]);
    await zoe.request('PUT', `/profile/${zoe.userId}/displayname`, { displayname: 'Renamed' });
    expect(await ids('ang')).toEqual([]);
    expect(await search('renamed')).toEqual({
      limited: false,
      results: [{ user_id: zoe.userId, display_name: 'Renamed', avatar_url: null }],
    });
    await zoe.request('POST', '/account/deactivate', {
      auth: {
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: 'zoe.smith' },
        password: 'password of zoe.smith',
      },
    });
    expect(await ids('smith')).toEqual([]);
  });

  it('shows only who shares a room, or is in a public one', async () => {
    await start();
    const stranger = await person('carol1', 'Carol');
    const friend = await person('carol2', 'Carol');
    const celebrity = await person('carol3', 'Carol');
    expect(await ids('carol')).toEqual([]);
    const shared = await roomWith('private_chat', alice, [friend]);
    await roomWith('public_chat', celebrity, []);
    expect(await ids('carol')).toEqual([friend.userId, celebrity.userId]);
    expect(await ids('carol', stranger)).toEqual([celebrity.userId]);
    await friend.request('POST', `/rooms/${shared}/leave`, {});
    expect(await ids('carol')).toEqual([celebrity.userId]);
  });

  it('does not know who is in a room any more once nobody of this server is', async () => {
    await start();
    const celebrity = await person('carol', 'Carol');
    const roomId = await roomWith('public_chat', celebrity, []);
    expect(await ids('carol')).toEqual([celebrity.userId]);
    // As if the one who is in it were of another server, and the last one of this server gone.
    const left = `UPDATE local_current_membership SET membership = 'leave' WHERE room_id = ?`;
    await server.server.service(Database).write((tx) => tx.run(left, [roomId]));
    expect(await ids('carol')).toEqual([]);
  });

  it('puts who is called exactly that first, and says when there are more', async () => {
    await start({ user_directory: { search_all_users: true } });
    const long = await person('a1', 'Rob Roberts Robertson');
    const exact = await person('z9', 'Rob');
    expect((await search('rob')).results.map((one) => one.user_id)).toEqual([exact.userId, long.userId]);
    expect(await search('rob', alice, 1)).toMatchObject({ limited: true, results: [{ user_id: exact.userId }] });
  });

  it('can be switched off', async () => {
    await start({ user_directory: { enabled: false } });
    await person('dave');
    expect(await search('dave')).toEqual({ limited: false, results: [] });
  });
});
