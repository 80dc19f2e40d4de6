import { fileURLToPath } from 'node:url';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import policyLists from '../src/index.js';
import { parseConfig } from '../src/config.js';
import { fits, Rules } from '../src/rules.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));

describe('rules', () => {
  it.each([
    ['*', '', true],
    ['a*c', 'abbbc', true],
    ['a*c', 'abcd', false],
    ['?b', 'ab', true],
    ['?', '', false],
    ['*.evil.example', 'a.evil.example', true],
    ['*a*a*a*a*a*a*a*a*b', 'a'.repeat(20_000), false],
  ])('%s and a text: %#', (pattern, text, expected) => expect(fits(pattern, text)).toBe(expected));

  it('ban users, servers and rooms, and nobody by what is no ban', () => {
    const rule = (kind: string, entity: unknown, recommendation = 'm.ban') => ({
      ...{ type: `m.policy.rule.${kind}`, content: { entity, recommendation, reason: 'spam' } },
    });
    const rules = new Rules([
      ...[rule('user', '@a:x'), rule('user', '@spam*:*'), rule('server', '*.Evil'), rule('room', '!r:x')],
      ...[rule('user', '@b:x', 'm.watch'), rule('user', 7), rule('user', ''), rule('elephant', '@c:x')],
    ]);
    const users = ['@a:x', '@spammer:y', '@d:very.evil', '@d:VERY.evil:8448', '@b:x', '@c:x', '@a:xx'];
    expect(users.filter((userId) => rules.bansUser(userId))).toEqual(users.slice(0, 4));
    expect([rules.bans('room', '!r:x'), rules.bans('room', '!s:x')]).toEqual([true, false]);
  });
});

describe('several processes', () => {
  /** A process with the module, as far as that asks it. */
  const processOf = (others: { forget(key: string): void }[], state: { rules: object[]; isAway: boolean }) => {
    const cached = new Map<string, Promise<unknown>>();
    const own = { forget: (key: string) => void cached.delete(key) };
    others.push(own);
    const callbacks: Record<string, (...args: object[]) => Promise<unknown>> = {};
    const keep = (given: object): void => void Object.assign(callbacks, given);
    const answer = async <T>(value: T): Promise<T> => {
      if (state.isAway) throw new Error('away');
      return value;
    };
    const api = {
      registerCachedFunction: (_: string, load: (key: string) => Promise<unknown>) => (key: string) => {
        if (!cached.has(key)) cached.set(key, load(key));
        return cached.get(key);
      },
      invalidateCache: async (_: string, key: string) => others.forEach(({ forget }) => forget(key)),
      lookupRoomAlias: () => answer({ roomId: '!bans' }),
      getRoomState: () => answer(state.rules),
      isMine: (id: string) => id.endsWith(':x'),
      getCurrentTimeMsec: () => 0,
      delayedBackgroundCall: () => {},
      log: { warn: () => {} },
      registerSpamCheckerCallbacks: keep,
      registerThirdPartyRulesCallbacks: keep,
    };
    void policyLists.register(api as never, parseConfig({ rooms: ['#bans:x'] }));
    return callbacks;
  };
  const ban = (entity: string) => ({ type: 'm.policy.rule.user', content: { entity, recommendation: 'm.ban' } });
  const create = { type: 'm.room.create', content: {} };
  const isRefused = async (callbacks: ReturnType<typeof processOf>, userId: string) =>
    callbacks['checkUsernameForSpam']!({ userId });

  it('all know of a change that one of them was told of, and keep what they know while a list is away', async () => {
    const state = { rules: [create] as object[], isAway: false };
    const others: { forget(key: string): void }[] = [];
    const [first, second] = [processOf(others, state), processOf(others, state)];
    expect(await isRefused(second, '@m:x')).toBe(false);
    state.rules = [create, ban('@m:x')];
    // The one that was told never looked at the list.
    await first['onNewEvent']!({ roomId: '!bans', type: 'm.policy.rule.user' });
    expect([await isRefused(first, '@m:x'), await isRefused(second, '@m:x')]).toEqual([true, true]);
    state.isAway = true;
    await first['onNewEvent']!({ roomId: '!bans', type: 'm.policy.rule.user' });
    expect([await isRefused(first, '@m:x'), await isRefused(second, '@m:x')]).toEqual([true, true]);
    expect(await isRefused(first, '@n:x')).toBe(false);
  });

  it('read a list once one of the users joins it, and keep what they know when the last has gone', async () => {
    const state = { rules: [] as object[], isAway: false };
    const others: { forget(key: string): void }[] = [];
    const [first, second] = [processOf(others, state), processOf(others, state)];
    expect([await isRefused(first, '@m:x'), await isRefused(second, '@m:x')]).toEqual([false, false]);
    state.rules = [create, ban('@m:x')];
    const member = { roomId: '!bans', type: 'm.room.member' };
    await first['onNewEvent']!({ ...member, stateKey: '@elsewhere:y' });
    expect(await isRefused(second, '@m:x')).toBe(false);
    await first['onNewEvent']!({ ...member, stateKey: '@a:x' });
    expect([await isRefused(first, '@m:x'), await isRefused(second, '@m:x')]).toEqual([true, true]);
    state.rules = [];
    await first['onNewEvent']!({ ...member, stateKey: '@a:x' });
    expect([await isRefused(first, '@m:x'), await isRefused(second, '@m:x')]).toEqual([true, true]);
  });
});

describe('a server with a policy list', () => {
  let server: TestHomeserver;
  let moderator: TestUser;
  let alice: TestUser;
  let mallory: TestUser;
  let list: string;
  let room: string;
  beforeAll(async () => {
    const config = {
      rooms: ['#bans:rookery.test'],
      exempt: ['@moderator:rookery.test'],
      max_mentions: 3,
      max_repeats: 2,
    };
    server = await createTestHomeserver({ settings: { modules: [{ module, config }] } });
    moderator = await server.registerUser('moderator');
    [alice, mallory] = [await server.registerUser('alice'), await server.registerUser('mallory')];
    const create = async (user: TestUser, body: object): Promise<string> =>
      (await user.request<{ room_id: string }>('POST', '/createRoom', body)).body.room_id;
    list = await create(moderator, { room_alias_name: 'bans' });
    room = await create(alice, { preset: 'public_chat', invite: [mallory.userId] });
    await mallory.request('POST', `/rooms/${encodeURIComponent(room)}/join`, {});
  });
  afterAll(() => server?.stop());

  let txn = 0;
  const send = async (user: TestUser, content: object) => {
    const path = `/rooms/${encodeURIComponent(room)}/send/m.room.message/${(txn += 1)}`;
    return user.request<{ errcode?: string; error?: string }>('PUT', path, { msgtype: 'm.text', ...content });
  };
  const setRule = (entity: string, content: object) =>
    moderator.request(
      'PUT',
      `/rooms/${encodeURIComponent(list)}/state/m.policy.rule.user/${encodeURIComponent(entity)}`,
      content,
    );

  it('refuses whom the list bans, from when it says so until it no longer does', async () => {
    expect(await send(mallory, { body: 'before' })).toMatchObject({ status: 200 });
    expect(
      await setRule('rule:m', { entity: '@mall*:rookery.test', recommendation: 'm.ban', reason: 'spam' }),
    ).toMatchObject({ status: 200 });
    await eventually(async () => (await send(mallory, { body: `still ${txn}` })).status === 403);
    expect(await send(mallory, { body: 'x' })).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(await send(alice, { body: 'fine' })).toMatchObject({ status: 200 });
    const invited = await mallory.request('POST', '/createRoom', { invite: [alice.userId] });
    expect(invited.status).toBe(403);
    expect((await mallory.request('POST', `/rooms/${encodeURIComponent(room)}/leave`, {})).status).toBe(200);
    expect(await setRule('rule:m', {})).toMatchObject({ status: 200 });
    await eventually(
      async () => (await mallory.request('POST', `/rooms/${encodeURIComponent(room)}/join`, {})).status === 200,
    );
    await eventually(async () => (await send(mallory, { body: `again ${txn}` })).status === 200);
  });

  it('forgets a rule that was redacted', async () => {
    const bob = await server.registerUser('bob');
    const set = await setRule('rule:b', { entity: bob.userId, recommendation: 'm.ban', reason: 'spam' });
    const { event_id: rule } = set.body as { event_id: string };
    await bob.request('POST', `/rooms/${encodeURIComponent(room)}/join`, {});
    const say = async (): Promise<number> => (await send(bob, { body: `bob ${txn}` })).status;
    await eventually(async () => (await say()) === 403);
    const path = `/rooms/${encodeURIComponent(list)}/redact/${encodeURIComponent(rule)}/${(txn += 1)}`;
    expect((await moderator.request('PUT', path, {})).status).toBe(200);
    await eventually(async () => (await say()) === 200);
  });

  it('refuses floods and crowds of mentions', async () => {
    const mention = (count: number) => ({ user_ids: Array.from({ length: count }, (_, i) => `@u${i}:x`) });
    expect(await send(alice, { body: 'hi all', 'm.mentions': mention(4) })).toMatchObject({ status: 403 });
    expect(await send(alice, { body: 'hi some', 'm.mentions': mention(3) })).toMatchObject({ status: 200 });
    const statuses: number[] = [];
    for (const body of ['buy', 'Buy ', 'BUY', 'other', 'buy']) statuses.push((await send(alice, { body })).status);
    expect(statuses).toEqual([200, 200, 403, 200, 200]);
    for (let i = 0; i < 4; i++)
      expect(await send(moderator, { body: 'order!' })).not.toMatchObject({
        body: { error: 'You have sent this too often' },
      });
  });
});
