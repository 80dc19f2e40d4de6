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
function load(config: object, answer: () => unknown): Service {
  const callbacks: SpamCheckerCallbacks = {};
  const asked: unknown[][] = [];
  let failures = 0;
  const api = {
    serverName: 'example.org',
    registerSpamCheckerCallbacks: (given: SpamCheckerCallbacks) => void Object.assign(callbacks, given),
    metrics: { counter: () => ({ inc: () => void (failures += 1) }) },
    log: { warn: () => {} },
    httpClient: {
      async postJsonGetJson(...args: unknown[]) {
        asked.push(args);
        return answer();
      },
    },
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
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    httpAntispam.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
