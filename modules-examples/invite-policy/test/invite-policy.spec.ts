import {
  type CallbackContext,
  ConfigError,
  DROP_SILENTLY,
  type ModuleApi,
  NOT_SPAM,
  type SpamCheckerCallbacks,
} from '@rookery/module-api';
import invitePolicy from '../src/index.js';

const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
const deny = { errcode: 'M_FORBIDDEN', message: 'no' };

/** What the policy says, and how often it asked for shared rooms. */
async function invite(
  config: object,
  inviter: string,
  invitee: string | undefined,
  { shared = false, isAdmin = false } = {},
): Promise<[verdict: unknown, asked: number]> {
  let callbacks: SpamCheckerCallbacks = {};
  let asked = 0;
  const api = {
    registerSpamCheckerCallbacks: (given: SpamCheckerCallbacks) => void (callbacks = given),
    usersShareRoom: async () => ((asked += 1), shared),
    log: { info: () => {} },
  } as unknown as ModuleApi;
  await invitePolicy.register(api, invitePolicy.parseConfig({ message: 'no', ...config }));
  const verdict =
    invitee === undefined
      ? await callbacks.userMaySend3pidInvite?.(inviter, 'email', 'a@example.org', '!r:x', { ...context, isAdmin })
      : await callbacks.userMayInvite?.(inviter, invitee, '!r:x', { ...context, isAdmin });
  return [verdict, asked];
}

const rules = [
  { from: '@bot:example.org', action: 'allow' },
  { from: '*:evil.Example', action: 'drop' },
  { to: '@vip*:example.org', shared_room: false, action: 'deny' },
  { shared_room: true, action: 'allow' },
];

it.each([
  ['@bot:example.org', '@vip1:example.org', false, NOT_SPAM, 0],
  ['@a:evil.example', '@b:example.org', false, DROP_SILENTLY, 0],
  ['@a:EVIL.example', '@b:example.org', false, DROP_SILENTLY, 0],
  ['@BOT:example.org', '@b:example.org', false, deny, 1],
  ['@a:not-evil.example', '@b:example.org', false, deny, 1],
  ['@a:example.org', '@vip2:example.org', false, deny, 1],
  ['@a:example.org', '@vip2:example.org', true, NOT_SPAM, 1],
  ['@a:example.org', '@b:example.org', true, NOT_SPAM, 1],
  ['@botXexample.org', '@b:example.org', false, deny, 1],
])('%s inviting %s (sharing a room: %p)', async (inviter, invitee, shared, verdict, asked) => {
  expect(await invite({ rules, otherwise: 'deny' }, inviter, invitee, { shared })).toEqual([verdict, asked]);
});

it.each([
  ['@bot:example.org', NOT_SPAM],
  ['@a:evil.example', deny],
  ['@a:example.org', deny],
])('%s inviting an address, which shares no room and fits no rule about users', async (inviter, verdict) => {
  const stranger = [...rules, { to: '*', action: 'allow' }];
  expect(await invite({ rules: stranger, otherwise: 'deny' }, inviter, undefined)).toEqual([verdict, 0]);
  expect(
    await invite({ rules: [{ shared_room: false, action: 'allow' }], otherwise: 'deny' }, inviter, undefined),
  ).toEqual([NOT_SPAM, 0]);
  expect(await invite({ otherwise: 'deny' }, inviter, undefined, { isAdmin: true })).toEqual([NOT_SPAM, 0]);
});

it('allows by default, and administrators always', async () => {
  expect(await invite({}, '@a:x', '@b:x')).toEqual([NOT_SPAM, 0]);
  expect(await invite({ otherwise: 'deny' }, '@a:x', '@b:x', { isAdmin: true })).toEqual([NOT_SPAM, 0]);
});

it.each([
  [undefined, []],
  [{ rule: [] }, ['rule']],
  [{ rules: {} }, ['rules']],
  [{ rules: [{ from: '*a*b*', action: 'deny' }] }, ['rules', 0, 'from']],
  [{ rules: [{ to: '', action: 'deny' }] }, ['rules', 0, 'to']],
  [{ rules: [{ action: 'deny' }, { shared_room: 'yes', action: 'deny' }] }, ['rules', 1, 'shared_room']],
  [{ rules: [{ from: '@a:x' }] }, ['rules', 0, 'action']],
  [{ otherwise: 'refuse' }, ['otherwise']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    invitePolicy.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
