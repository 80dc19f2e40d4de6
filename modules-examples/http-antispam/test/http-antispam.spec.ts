import {
  type CallbackContext,
  ConfigError,
  DROP_SILENTLY,
  type ModuleApi,
  type ModuleEvent,
  NOT_SPAM,
  type SpamCheckerCallbacks,
} from '@rookery/module-api';
import httpAntispam from '../src/index.js';

const context: CallbackContext = { source: 'client', ip: '192.0.2.7', isAdmin: false, duringRoomCreation: false };
const url = 'https://spam.example/check';

interface Service {
  callbacks: SpamCheckerCallbacks;
  asked: unknown[][];
  failures: () => number;
}

/** The module, with a service that answers what it is told to. */
function load(config: object, answer: () => unknown, status = 200): Service {
  const callbacks: SpamCheckerCallbacks = {};
  const asked: unknown[][] = [];
  let failures = 0;
  const api = {
    serverName: 'example.org',
    registerSpamCheckerCallbacks: (given: SpamCheckerCallbacks) => void Object.assign(callbacks, given),
    metrics: { counter: () => ({ inc: () => void (failures += 1) }) },
    log: { warn: () => {} },
    httpClient: {
      async request(method: string, address: string, body: string, options: unknown) {
        asked.push([method, address, JSON.parse(body), options]);
        const given = answer();
        return { status, headers: {}, body: Buffer.from(typeof given === 'string' ? given : JSON.stringify(given)) };
      },
    },
    runAsBackgroundProcess: (_: string, work: () => Promise<void>) => void work(),
  } as unknown as ModuleApi;
  void httpAntispam.register(api, httpAntispam.parseConfig({ url, on_failure: 'deny', ...config }));
  return { callbacks, asked, failures: () => failures };
}

const event = {
  eventId: '$e',
  roomId: '!r:x',
  type: 'm.room.message',
  sender: '@a:x',
  content: { body: 'hi' },
} as unknown as ModuleEvent;
const refused = { errcode: 'M_FORBIDDEN', message: 'This cannot be checked right now; try again later' };

it('asks with the event, where it came from, and the token', async () => {
  const { callbacks, asked } = load({ token: 'secret', timeout_ms: 500 }, () => ({ verdict: 'allow' }));
  expect(await callbacks.checkEventForSpam?.(event, context)).toBe(NOT_SPAM);
  expect(asked).toMatchObject([
    [
      'POST',
      url,
      {
        subject: 'event',
        server: 'example.org',
        event: { event_id: '$e', room_id: '!r:x', type: 'm.room.message', sender: '@a:x', content: { body: 'hi' } },
        context: { ip: '192.0.2.7', source: 'client' },
      },
      { headers: { authorization: 'Bearer secret' }, timeoutMs: 500 },
    ],
  ]);
});

it.each([
  [{ verdict: 'allow' }, NOT_SPAM],
  [{ verdict: 'deny' }, { errcode: 'M_FORBIDDEN' }],
  [
    { verdict: 'deny', errcode: 'M_LIMIT_EXCEEDED', message: 'slowly' },
    { errcode: 'M_LIMIT_EXCEEDED', message: 'slowly' },
  ],
  [{ verdict: 'deny', errcode: 'not a code' }, { errcode: 'M_FORBIDDEN' }],
  [{ verdict: 'drop' }, DROP_SILENTLY],
])('understands %j', async (answer, verdict) => {
  const { callbacks, failures } = load({}, () => answer);
  expect(await callbacks.checkEventForSpam?.(event, context)).toEqual(verdict);
  expect(failures()).toBe(0);
});

it.each([
  ['allow', { verdict: 'allow' }, NOT_SPAM, 'allow'],
  ['deny', { verdict: 'deny' }, { errcode: 'M_FORBIDDEN' }, 'deny'],
  ['drop', { verdict: 'drop' }, { errcode: 'M_FORBIDDEN' }, 'deny'],
  ['shadow_ban', { verdict: 'shadow_ban' }, { errcode: 'M_FORBIDDEN' }, 'shadowBan'],
])('%s means for joins, logins and registrations what it can', async (_, answer, strict, behavior) => {
  const { callbacks } = load({ ask: ['join', 'login', 'registration'] }, () => answer);
  expect(await callbacks.userMayJoinRoom?.('@a:x', '!r:x', false, context)).toEqual(strict);
  expect(await callbacks.checkLoginForSpam?.('@a:x', undefined, undefined, [], undefined, context)).toEqual(strict);
  expect(await callbacks.checkRegistrationForSpam?.(undefined, 'a', [], undefined, context)).toBe(behavior);
});

it.each([
  [
    'a service that is away',
    (): unknown => {
      throw new Error('refused');
    },
  ],
  ['an answer that means nothing', (): unknown => ({ verdict: 'perhaps' })],
  ['no answer', (): unknown => null],
])('does what the operator chose with %s', async (_, answer) => {
  const denying = load({ on_failure: 'deny' }, answer);
  expect(await denying.callbacks.checkEventForSpam?.(event, context)).toMatchObject({ message: refused.message });
  expect(denying.failures()).toBe(1);
  const allowing = load({ on_failure: 'allow' }, answer);
  expect(await allowing.callbacks.checkEventForSpam?.(event, context)).toBe(NOT_SPAM);
});

describe('in the form of callbacks', () => {
  const ask = ['event', 'invite', 'remote_invite', 'threepid_invite', 'join', 'room', 'alias', 'publish', 'username'];
  const config = { form: 'callbacks', url: 'https://spam.example/api/', ask: [...ask, 'login'] };

  it('asks at the address of each, with its arguments', async () => {
    const { callbacks: on, asked } = load(config, () => ({}));
    const user = { userId: '@b:x', displayName: 'B', avatarUrl: undefined };
    const phone = { userAgent: undefined, ip: '192.0.2.7' };
    expect(await on.checkEventForSpam?.(event, context)).toBe(NOT_SPAM);
    await on.federatedUserMayInvite?.(event, context);
    await on.userMayInvite?.('@a:x', '@b:x', '!r:x', context);
    await on.userMaySend3pidInvite?.('@a:x', 'email', 'b@x', '!r:x', context);
    await on.userMayJoinRoom?.('@a:x', '!r:x', true, context);
    await on.userMayCreateRoom?.('@a:x', {}, context);
    await on.userMayCreateRoomAlias?.('@a:x', '#r:x', context);
    await on.userMayPublishRoom?.('@a:x', '!r:x', context);
    expect(await on.checkUsernameForSpam?.(user, '@a:x', context)).toBe(false);
    await on.checkLoginForSpam?.('@a:x', undefined, 'Phone', [phone], undefined, context);
    const inRoom = { user_id: '@a:x', room_id: '!r:x' };
    expect(asked.map(([, address, body]) => [String(address).replace('https://spam.example/api/', ''), body])).toEqual([
      ['check_event_for_spam', { event: expect.objectContaining({ event_id: '$e', sender: '@a:x' }) }],
      ['federated_user_may_invite', { event: expect.objectContaining({ event_id: '$e' }) }],
      ['user_may_invite', { inviter: '@a:x', invitee: '@b:x', room_id: '!r:x' }],
      ['user_may_send_3pid_invite', { inviter: '@a:x', medium: 'email', address: 'b@x', room_id: '!r:x' }],
      ['user_may_join_room', { user: '@a:x', room: '!r:x', is_invited: true }],
      ['user_may_create_room', { user_id: '@a:x' }],
      ['user_may_create_room_alias', { user_id: '@a:x', room_alias: '#r:x' }],
      ['user_may_publish_room', inRoom],
      [
        'check_username_for_spam',
        { user_profile: { user_id: '@b:x', display_name: 'B', avatar_url: null }, requester_id: '@a:x' },
      ],
      [
        'check_login_for_spam',
        {
          ...{ user_id: '@a:x', device_id: null, initial_display_name: 'Phone' },
          ...{ request_info: [[null, '192.0.2.7']], auth_provider_id: null },
        },
      ],
    ]);
  });

  it.each([
    [
      'words of its own',
      { errcode: 'M_LIMIT_EXCEEDED', error: 'slowly' },
      { errcode: 'M_LIMIT_EXCEEDED', message: 'slowly' },
    ],
    ['no code', { error: 'No' }, { errcode: 'M_FORBIDDEN', message: 'No' }],
    ['a page', '<h1>Bad gateway</h1>', { message: refused.message }],
  ])('refuses by a status other than success: %s', async (_, answer, verdict) => {
    const { callbacks, failures } = load(config, () => answer, 403);
    expect(await callbacks.userMayInvite?.('@a:x', '@b:x', '!r:x', context)).toEqual(verdict);
    expect(failures()).toBe(typeof answer === 'string' ? 1 : 0);
  });

  it('does with silence what is said of each, and waits for nothing that it only tells', async () => {
    const away = (): unknown => {
      throw new Error('refused');
    };
    const more = { on_failure: { event: 'allow', others: 'deny' }, background: ['room'] };
    const { callbacks, asked } = load({ ...config, ...more }, away);
    expect(await callbacks.checkEventForSpam?.(event, context)).toBe(NOT_SPAM);
    expect(await callbacks.userMayJoinRoom?.('@a:x', '!r:x', true, context)).toEqual({ message: refused.message });
    expect(await callbacks.userMayCreateRoom?.('@a:x', {}, context)).toBe(NOT_SPAM);
    expect(asked.length).toBe(3);
  });
});

it('asks only about what it is told to', () => {
  expect(Object.keys(load({}, () => null).callbacks)).toEqual(['checkEventForSpam']);
  expect(Object.keys(load({ ask: ['invite', 'join'] }, () => null).callbacks)).toEqual([
    'userMayInvite',
    'userMayJoinRoom',
  ]);
});

it.each([
  [undefined, []],
  [{ on_failure: 'deny' }, ['url']],
  [{ url: 'file:///etc/passwd', on_failure: 'deny' }, ['url']],
  [{ url }, ['on_failure']],
  [{ url, on_failure: 'deny', ask: ['event', 'weather'] }, ['ask', 1]],
  [{ url, on_failure: 'deny', timeout_ms: 60_000 }, ['timeout_ms']],
  [{ url, on_failure: 'deny', token: 'a b' }, ['token']],
  [{ url, on_failure: 'deny', other: 1 }, ['other']],
  [{ url, on_failure: 'deny', form: 'json' }, ['form']],
  [{ url, on_failure: 'deny', form: 'callbacks', ask: ['registration'] }, ['ask', 0]],
  [{ url, on_failure: 'deny', background: ['login'] }, ['background', 0]],
  [{ url, on_failure: { event: 'allow' } }, ['on_failure', 'others']],
  [{ url, on_failure: { event: 'perhaps', others: 'deny' } }, ['on_failure', 'event']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    httpAntispam.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
