import {
  type CallbackContext,
  type CallbackCategories,
  type CallbackCategory,
  Codes,
  DROP_SILENTLY,
  type ModuleEvent,
  type ModuleEventDraft,
  NOT_SPAM,
  PRESENCE_ALL_USERS,
  type RoomStateView,
  SOFT_FAIL,
} from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, LogContext, SilentLogger, type Timer } from '@rookery/platform';
import type { CallOutcome } from './figures.js';
import { callbackContext } from './context.js';
import { type ArgsOf, ModuleDispatcher } from './dispatcher.js';
import { type ModulePolicy, ModuleRegistry } from './registry.js';

/** Time that moves by hand; timers fire as it passes them. */
class HandClock extends Clock {
  #now = 1000;
  #timers: { at: number; fn: () => void }[] = [];
  nowMs(): number {
    return this.#now;
  }
  monotonicMs(): number {
    return this.#now;
  }
  after(delayMs: number, fn: () => void): Timer {
    const timer = { at: this.#now + delayMs, fn };
    this.#timers.push(timer);
    return { cancel: () => void (this.#timers = this.#timers.filter((other) => other !== timer)) };
  }
  every(): Timer {
    throw new Error('not used');
  }
  get waiting(): number {
    return this.#timers.length;
  }
  pass(ms: number): void {
    this.#now += ms;
    const due = this.#timers.filter(({ at }) => at <= this.#now);
    this.#timers = this.#timers.filter(({ at }) => at > this.#now);
    for (const { fn } of due) fn();
  }
}

interface Told {
  clock: HandClock;
  logged: { level: string; message: string; fields: Record<string, unknown> | undefined }[];
  outcomes: string[];
  modules: ModuleDispatcher;
}

type Registration = {
  [Category in CallbackCategory]: [string, Category, CallbackCategories[Category], Partial<ModulePolicy>?];
}[CallbackCategory];

function host(...registrations: Registration[]): Told {
  const clock = new HandClock();
  const logged: Told['logged'] = [];
  const outcomes: string[] = [];
  class ListLogger extends SilentLogger {
    override warn(message = '', fields?: Record<string, unknown>): void {
      logged.push({ level: 'warn', message, fields });
    }
    override error(message = '', fields?: Record<string, unknown>): void {
      logged.push({ level: 'error', message, fields });
    }
  }
  const observe = (module: string, callback: string, outcome: CallOutcome): void =>
    void outcomes.push(`${module} ${callback} ${outcome}`);
  const modules = new ModuleDispatcher({ clock, log: new ListLogger(), observe });
  const registry = new ModuleRegistry(() => {});
  for (const [module, category, callbacks, policy] of registrations) {
    registry.addModule(module);
    registry.add(module, { onError: 'deny', timeLimitMs: undefined, ...policy }, category, callbacks as never);
  }
  modules.install(registry.seal());
  return { clock, logged, outcomes, modules };
}

const context = callbackContext(undefined);
const event: ModuleEvent = {
  eventId: '$event',
  roomId: '!room:example.org',
  roomVersion: '12',
  type: 'm.room.message',
  stateKey: undefined,
  sender: '@alice:example.org',
  content: { body: 'hello', nested: { list: [1, { deep: true }] } },
  originServerTs: 1,
  redacts: undefined,
  depth: 3,
  prevEventIds: [],
  authEventIds: [],
  pdu: {},
};
const draft: ModuleEventDraft = { ...event, eventId: undefined };
const state: RoomStateView = {
  get: async () => undefined,
  ofType: async () => [],
  all: async () => [],
};
const spamChecker = (
  name: string,
  answer: unknown,
  policy: Partial<ModulePolicy> = {},
): [string, 'spamChecker', CallbackCategories['spamChecker'], Partial<ModulePolicy>] => [
  name,
  'spamChecker',
  { checkEventForSpam: async () => answer as typeof NOT_SPAM },
  policy,
];

describe('a gate', () => {
  it('lets everything pass without a module, and says so beforehand', async () => {
    const { modules } = host();
    expect(modules.has('checkEventForSpam')).toBe(false);
    expect(await modules.gate('checkEventForSpam', context, event)).toEqual({ allowed: true, shadowBan: false });
  });

  it('asks in the order of the modules and stops at the first refusal', async () => {
    const asked: string[] = [];
    const checker = (name: string, answer: typeof NOT_SPAM | Codes): Registration => [
      name,
      'spamChecker',
      {
        async checkEventForSpam() {
          asked.push(name);
          return answer;
        },
      },
    ];
    const { modules } = host(
      checker('one', NOT_SPAM),
      checker('two', Codes.LIMIT_EXCEEDED),
      checker('three', Codes.FORBIDDEN),
    );
    expect(modules.has('checkEventForSpam')).toBe(true);
    const verdict = await modules.gate('checkEventForSpam', context, event);
    expect(verdict).toMatchObject({
      allowed: false,
      errcode: 'M_LIMIT_EXCEEDED',
      status: 403,
      module: 'two',
      failed: false,
    });
    expect(asked).toEqual(['one', 'two']);
  });

  it('hands over the context as the last argument', async () => {
    const seen: unknown[][] = [];
    const { modules } = host([
      'm',
      'spamChecker',
      {
        userMayJoinRoom(...args) {
          seen.push(args);
          return NOT_SPAM;
        },
      },
    ]);
    const given = callbackContext(undefined, { source: 'client', ip: '192.0.2.1', duringRoomCreation: true });
    await modules.gate('userMayJoinRoom', given, '@a:x', '!r:x', true);
    expect(seen).toEqual([['@a:x', '!r:x', true, given]]);
    expect(seen[0]?.[3]).toMatchObject({ ip: '192.0.2.1', duringRoomCreation: true, isAdmin: false });
  });

  it.each([
    ['a code', Codes.FORBIDDEN, { errcode: 'M_FORBIDDEN', status: 403, effect: 'refuse' }],
    ['a namespaced code', 'ORG.EXAMPLE_SPAM', { errcode: 'ORG.EXAMPLE_SPAM', status: 403 }],
    [
      'a refusal with words',
      { errcode: 'M_LIMIT_EXCEEDED', status: 429, message: 'slow down', extra: { retry_after_ms: 5 } },
      { errcode: 'M_LIMIT_EXCEEDED', status: 429, message: 'slow down', extra: { retry_after_ms: 5 } },
    ],
    ['an empty refusal', {}, { errcode: 'M_FORBIDDEN', status: 403 }],
    ['a silent drop', DROP_SILENTLY, { effect: 'dropSilently' }],
    ['a soft failure', SOFT_FAIL, { effect: 'softFail' }],
    ['a text, as modules once did', 'no cats here', { errcode: 'M_FORBIDDEN', message: 'no cats here' }],
    ['true, as modules once did', true, { errcode: 'M_FORBIDDEN', status: 403 }],
  ])('understands %s', async (_, answer, expected) => {
    const { modules, outcomes } = host(spamChecker('m', answer));
    const verdict = await modules.gate('checkEventForSpam', context, event);
    expect(verdict).toMatchObject({ allowed: false, failed: false, module: 'm', ...expected });
    expect(outcomes).toEqual(['m checkEventForSpam refused']);
  });

  it('takes old answers, and names module, callback and the new form in the log', async () => {
    const { modules, logged } = host(spamChecker('old', false));
    expect((await modules.gate('checkEventForSpam', context, event)).allowed).toBe(true);
    expect(logged).toHaveLength(1);
    expect(logged[0]).toMatchObject({ level: 'warn', fields: { module: 'old', callback: 'checkEventForSpam' } });
    expect(logged[0]?.fields?.advice).toContain('return NOT_SPAM');
  });

  it('reads an old boolean of the other spam checks the other way round', async () => {
    const answering = (answer: boolean): Told =>
      host(['old', 'spamChecker', { userMayInvite: async () => answer as unknown as typeof NOT_SPAM }]);
    const args = ['@a:x', '@b:x', '!r:x'] as const;
    expect((await answering(true).modules.gate('userMayInvite', context, ...args)).allowed).toBe(true);
    expect((await answering(false).modules.gate('userMayInvite', context, ...args)).allowed).toBe(false);
  });

  it('reads an old boolean about a file as that of an event: true is spam', async () => {
    const verdict = (answer: unknown): Promise<{ allowed: boolean; failed?: boolean }> =>
      host(['old', 'spamChecker', { checkMediaFileForSpam: async () => answer as typeof NOT_SPAM }]).modules.gate(
        'checkMediaFileForSpam',
        context,
        ...([{}, {}] as unknown as ArgsOf<'checkMediaFileForSpam'>),
      );
    expect(await verdict(true)).toMatchObject({ allowed: false, failed: false });
    expect((await verdict(false)).allowed).toBe(true);
    expect(await verdict('some words')).toMatchObject({ allowed: false, failed: true });
  });

  it.each([DROP_SILENTLY, SOFT_FAIL])('takes %s only where it means something', async (answer) => {
    const { modules } = host(['m', 'spamChecker', { userMayJoinRoom: async () => answer as typeof NOT_SPAM }]);
    const verdict = await modules.gate('userMayJoinRoom', context, '@a:x', '!r:x', false);
    expect(verdict).toMatchObject({ allowed: false, failed: true, status: 500, errcode: 'M_UNKNOWN' });
  });

  it('takes no boolean where the field never did', async () => {
    const { modules } = host([
      'm',
      'spamChecker',
      { checkLoginForSpam: async () => true as unknown as typeof NOT_SPAM },
    ]);
    const verdict = await modules.gate('checkLoginForSpam', context, '@a:x', undefined, undefined, [], undefined);
    expect(verdict).toMatchObject({ allowed: false, failed: true, status: 500, errcode: 'M_UNKNOWN' });
  });

  it.each([
    ['nothing', undefined],
    ['null', null],
    ['a number', 42],
    ['a list', ['M_FORBIDDEN']],
    ['a refusal with a status of success', { status: 200 }],
    ['a refusal with a code that is none', { errcode: 'no spaces allowed' }],
    ['a refusal whose message is no text', { message: {} }],
  ])('treats %s as a failure', async (_, answer) => {
    const { modules, outcomes, logged } = host(spamChecker('rubbish', answer));
    const verdict = await modules.gate('checkEventForSpam', context, event);
    expect(verdict).toMatchObject({ allowed: false, failed: true, status: 500, errcode: 'M_UNKNOWN' });
    expect(outcomes).toEqual(['rubbish checkEventForSpam invalid']);
    expect(logged[0]).toMatchObject({
      level: 'error',
      fields: {
        module: 'rubbish',
        callback: 'checkEventForSpam',
        expected: expect.stringContaining('NOT_SPAM') as string,
      },
    });
  });

  it('refuses with 500 when a module throws, and keeps the reason from the client', async () => {
    const { modules, logged, outcomes } = host([
      'broken',
      'spamChecker',
      {
        checkEventForSpam() {
          throw new Error('secret');
        },
      },
    ]);
    const verdict = await modules.gate('checkEventForSpam', context, event);
    expect(verdict).toMatchObject({
      allowed: false,
      failed: true,
      status: 500,
      errcode: 'M_UNKNOWN',
      module: 'broken',
    });
    expect(JSON.stringify(verdict)).not.toContain('secret');
    expect(logged[0]).toMatchObject({ level: 'error', fields: { module: 'broken', callback: 'checkEventForSpam' } });
    expect(outcomes).toEqual(['broken checkEventForSpam error']);
  });

  it('goes on to the next module after a failure when the entry says on_error: allow', async () => {
    const { modules } = host(
      ['broken', 'spamChecker', { checkEventForSpam: () => Promise.reject(new Error('x')) }, { onError: 'allow' }],
      spamChecker('rubbish', 42, { onError: 'allow' }),
      spamChecker('strict', Codes.FORBIDDEN),
    );
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ module: 'strict', failed: false });
  });

  it('takes a MatrixError that a module throws for its refusal', async () => {
    const { modules } = host([
      'm',
      'spamChecker',
      {
        checkEventForSpam: () =>
          Promise.reject(new MatrixError(429, 'M_LIMIT_EXCEEDED', 'later', { retry_after_ms: 9 })),
      },
    ]);
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({
      failed: false,
      status: 429,
      errcode: 'M_LIMIT_EXCEEDED',
      message: 'later',
      extra: { retry_after_ms: 9 },
    });
  });

  it('takes a MatrixError of the server kind for a failure', async () => {
    const { modules } = host([
      'm',
      'spamChecker',
      { checkEventForSpam: () => Promise.reject(new MatrixError(502, 'M_UNKNOWN', 'no answer')) },
    ]);
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ failed: true, status: 500 });
  });

  it('ends a shadow ban of a registration as accepted', async () => {
    const registering = (answer: string): Told =>
      host(['m', 'spamChecker', { checkRegistrationForSpam: async () => answer as 'allow' }]);
    const ask = (told: Told): Promise<unknown> =>
      told.modules.gate('checkRegistrationForSpam', context, undefined, 'alice', [], undefined);
    expect(await ask(registering('allow'))).toEqual({ allowed: true, shadowBan: false });
    expect(await ask(registering('shadowBan'))).toEqual({ allowed: true, shadowBan: true });
    expect(await ask(registering('deny'))).toMatchObject({ allowed: false, failed: false });
    expect(await ask(registering('ALLOW'))).toMatchObject({ allowed: false, failed: true });
  });

  it.each([
    [false, true],
    ['', true],
    [true, false],
    ['known spammer', false],
  ])('drops a federated event silently for %p', async (answer, allowed) => {
    const { modules } = host(['m', 'spamChecker', { shouldDropFederatedEvent: async () => answer }]);
    const verdict = await modules.gate('shouldDropFederatedEvent', context, event);
    expect(verdict.allowed).toBe(allowed);
    if (!verdict.allowed) expect(verdict.effect).toBe('dropSilently');
  });

  it('answers 413 for an upload that is too large, and M_THREEPID_DENIED for an address', async () => {
    const { modules } = host(
      ['media', 'mediaRepository', { isUserAllowedToUploadMediaOfSize: async () => false }],
      ['address', 'passwordAuthProvider', { is3pidAllowed: async () => false }],
    );
    expect(await modules.gate('isUserAllowedToUploadMediaOfSize', context, '@a:x', 5)).toMatchObject({
      status: 413,
      errcode: 'M_TOO_LARGE',
    });
    expect(await modules.gate('is3pidAllowed', context, 'email', 'a@example.org', true)).toMatchObject({
      status: 403,
      errcode: 'M_THREEPID_DENIED',
    });
  });
});

describe('a module that hangs', () => {
  const never = (): Promise<typeof NOT_SPAM> => new Promise(() => {});
  const hanging: Registration = ['slow', 'spamChecker', { checkEventForSpam: never }, { timeLimitMs: 200 }];

  it('fails after its time budget', async () => {
    const { modules, clock, outcomes, logged } = host(hanging);
    const verdict = modules.gate('checkEventForSpam', context, event);
    clock.pass(199);
    expect(clock.waiting).toBe(1);
    clock.pass(1);
    expect(await verdict).toMatchObject({ allowed: false, failed: true, status: 500 });
    expect(outcomes).toEqual(['slow checkEventForSpam timeout']);
    expect(logged[0]).toMatchObject({
      level: 'error',
      message: 'A module did not answer in time',
      fields: { module: 'slow', callback: 'checkEventForSpam', timeLimitMs: 200 },
    });
  });

  it('is not waited for any more after five times, and asked again later', async () => {
    const { modules, clock, outcomes } = host(hanging);
    for (let i = 0; i < 5; i++) {
      const verdict = modules.gate('checkEventForSpam', context, event);
      clock.pass(200);
      expect((await verdict).allowed).toBe(false);
    }
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ failed: true });
    expect(outcomes.at(-1)).toBe('slow checkEventForSpam suspended');
    clock.pass(30_000);
    const again = modules.gate('checkEventForSpam', context, event);
    clock.pass(200);
    await again;
    expect(outcomes.at(-1)).toBe('slow checkEventForSpam timeout');
  });

  it('is asked for everybody else meanwhile, whoever it hangs for', async () => {
    const { modules, clock, outcomes, logged } = host([
      'm',
      'spamChecker',
      { checkEventForSpam: ({ content }) => (content.body === 'hang' ? never() : NOT_SPAM) },
      { timeLimitMs: 200 },
    ]);
    const hanging = { ...event, sender: '@mallory:example.org', content: { body: 'hang' } };
    const five = Array.from({ length: 5 }, () => modules.gate('checkEventForSpam', context, hanging));
    clock.pass(200);
    for (const verdict of await Promise.all(five)) expect(verdict).toMatchObject({ failed: true });
    expect(await modules.gate('checkEventForSpam', context, hanging)).toMatchObject({ failed: true });
    expect(outcomes.at(-1)).toBe('m checkEventForSpam suspended');
    expect(logged.at(-1)?.fields).toMatchObject({ askedFor: '@mallory:example.org' });
    expect((await modules.gate('checkEventForSpam', context, event)).allowed).toBe(true);
    expect(outcomes.at(-1)).toBe('m checkEventForSpam ok');
  });

  it.each([
    ['their user', { userId: '@mallory:example.org' }, { userId: '@alice:example.org' }],
    ['their address', { ip: '192.0.2.1' }, { ip: '192.0.2.2' }],
    ['their server', { origin: 'one.example' }, { origin: 'other.example' }],
  ])('where there is no event, askers are told apart by %s', async (_, one, other) => {
    const { modules, clock } = host([
      'm',
      'spamChecker',
      { userMayInvite: (inviter) => (inviter === '@hang:x' ? never() : NOT_SPAM) },
      { timeLimitMs: 200 },
    ]);
    const ask = (inviter: string, details: object): Promise<{ allowed: boolean }> =>
      modules.gate('userMayInvite', callbackContext(undefined, details), inviter, '@b:x', '!r:x');
    const five = Array.from({ length: 5 }, () => ask('@hang:x', one));
    clock.pass(200);
    await Promise.all(five);
    expect((await ask('@fine:x', one)).allowed).toBe(false);
    expect((await ask('@fine:x', other)).allowed).toBe(true);
  });

  it('is asked once when the pause is over, and not again when that hangs, too', async () => {
    const { modules, clock, outcomes } = host(hanging);
    const ask = async (): Promise<void> => {
      const verdict = modules.gate('checkEventForSpam', context, event);
      clock.pass(200);
      await verdict;
    };
    for (let i = 0; i < 5; i++) await ask();
    clock.pass(30_000);
    await ask();
    await ask();
    expect(outcomes.slice(-2)).toEqual(['slow checkEventForSpam timeout', 'slow checkEventForSpam suspended']);
  });

  it('keeps a bounded number of askers in mind', async () => {
    // For one it never hangs, so it is not dead.
    const answering = ({ sender }: ModuleEvent): Promise<typeof NOT_SPAM> =>
      sender === '@fine:x' ? Promise.resolve(NOT_SPAM) : never();
    const { modules, clock, outcomes } = host([
      ...(['slow', 'spamChecker', { checkEventForSpam: answering }] as const),
      { timeLimitMs: 200 },
    ]);
    for (let i = 0; i < 1_005; i++) {
      await modules.gate('checkEventForSpam', context, { ...event, sender: '@fine:x' });
      const asked = Array.from({ length: 5 }, () =>
        modules.gate('checkEventForSpam', context, { ...event, sender: `@u${i}:x` }),
      );
      clock.pass(200);
      await Promise.all(asked);
      clock.pass(-200);
    }
    const last = async (sender: string): Promise<string | undefined> => {
      const verdict = modules.gate('checkEventForSpam', context, { ...event, sender });
      clock.pass(200);
      await verdict;
      return outcomes.at(-1);
    };
    expect(await last('@u1004:x')).toBe('slow checkEventForSpam suspended');
    expect(await last('@u0:x')).toBe('slow checkEventForSpam timeout');
  });

  describe('for many', () => {
    const start = (): Told & {
      ask(sender: string): Promise<{ allowed: boolean }>;
      hang(...senders: string[]): Promise<void>;
      hanging: Set<string>;
      asked: string[];
    } => {
      const asked: string[] = [];
      const hanging = new Set<string>();
      const told = host([
        'm',
        'spamChecker',
        {
          checkEventForSpam: ({ sender }) => {
            asked.push(sender);
            return hanging.has(sender) || hanging.has('all') ? never() : Promise.resolve(NOT_SPAM);
          },
        },
        { timeLimitMs: 200 },
      ]);
      const ask = (sender: string): Promise<{ allowed: boolean }> =>
        told.modules.gate('checkEventForSpam', context, { ...event, sender });
      const hang = async (...senders: string[]): Promise<void> => {
        for (const sender of senders) hanging.add(sender);
        const verdicts = senders.map(ask);
        told.clock.pass(200);
        await Promise.all(verdicts);
      };
      return { ...told, ask, hang, hanging, asked };
    };
    const five = ['@a:x', '@b:x', '@c:x', '@d:x', '@e:x'];

    it('is waited for by nobody once it hung for several, until it answers one that nobody waits for', async () => {
      const { ask, hang, hanging, outcomes, logged, asked, clock } = start();
      await hang('all', ...five);
      expect(outcomes.at(-1)).toBe('m checkEventForSpam timeout');
      asked.length = 0;
      // Nobody waits, and each new asker is one to try it with; each of them once at a time.
      for (const sender of ['@f:x', '@g:x', '@g:x']) {
        expect((await ask(sender)).allowed).toBe(false);
        expect(outcomes.at(-1)).toBe('m checkEventForSpam suspended');
      }
      expect(asked).toEqual(['@f:x', '@g:x']);
      expect(logged.at(-1)?.message).toBe('A module is not waited for until it answers again: it hung for everybody');
      // Of those whom it let down it is tried with one at a time, and not at once again.
      expect((await ask('@a:x')).allowed).toBe(false);
      expect(asked).toHaveLength(2);
      clock.pass(200);
      expect(outcomes.slice(-2)).toEqual(['m checkEventForSpam timeout', 'm checkEventForSpam timeout']);
      expect((await ask('@a:x')).allowed).toBe(false);
      expect(asked).toHaveLength(2);
      clock.pass(1_000);
      hanging.clear();
      expect((await ask('@a:x')).allowed).toBe(false);
      expect(asked).toEqual(['@f:x', '@g:x', '@a:x']);
      expect((await ask('@a:x')).allowed).toBe(true);
      expect((await ask('@h:x')).allowed).toBe(true);
    });

    it('is waited for as ever by others while it answers any of them, however many it hangs for', async () => {
      const { ask, hang, outcomes } = start();
      for (const sender of [...five, '@f:x', '@g:x']) {
        await hang(sender);
        expect((await ask('@fine:x')).allowed).toBe(true);
      }
      expect(outcomes).not.toContain('m checkEventForSpam suspended');
      // One user counts once.
      await hang('@a:x', '@a:x', '@a:x', '@a:x', '@a:x', '@a:x');
      expect((await ask('@fine:x')).allowed).toBe(true);
    });

    it('cannot be kept dead by those whom it hangs for', async () => {
      const { ask, hang, asked } = start();
      await hang(...five);
      expect((await ask('@a:x')).allowed).toBe(false);
      for (const sender of five) await ask(sender);
      expect(asked.slice(5)).toEqual(['@a:x']);
      // The first other one is not waited for either, but shows that it lives.
      expect((await ask('@fine:x')).allowed).toBe(false);
      expect((await ask('@fine:x')).allowed).toBe(true);
      expect((await ask('@other:x')).allowed).toBe(true);
    });

    it('is tried with a bounded number of questions at once', async () => {
      const { ask, hang, asked } = start();
      await hang('all', ...five);
      asked.length = 0;
      for (let i = 0; i < 50; i++) expect((await ask(`@u${i}:x`)).allowed).toBe(false);
      expect(asked).toHaveLength(20);
    });

    it('lives again when it fails instead', async () => {
      let isBroken = false;
      const { modules, clock, outcomes } = host([
        'm',
        'spamChecker',
        {
          checkEventForSpam: () => {
            if (isBroken) throw new Error('broken');
            return never();
          },
        },
        { timeLimitMs: 200 },
      ]);
      const ask = (sender: string): Promise<unknown> =>
        modules.gate('checkEventForSpam', context, { ...event, sender });
      const verdicts = five.map(ask);
      clock.pass(200);
      await Promise.all(verdicts);
      isBroken = true;
      await ask('@f:x');
      await ask('@f:x');
      expect(outcomes.slice(-3)).toEqual([
        'm checkEventForSpam suspended',
        'm checkEventForSpam error',
        'm checkEventForSpam error',
      ]);
    });
  });

  it('is waited for as before once it has answered again', async () => {
    let hang = true;
    const { modules, clock, outcomes } = host([
      'moody',
      'spamChecker',
      { checkEventForSpam: () => (hang ? new Promise<typeof NOT_SPAM>(() => {}) : NOT_SPAM) },
      { timeLimitMs: 200 },
    ]);
    for (const hangs of [true, true, true, true, false, true, true, true, true]) {
      hang = hangs;
      const verdict = modules.gate('checkEventForSpam', context, event);
      clock.pass(200);
      expect((await verdict).allowed).toBe(!hangs);
    }
    expect(outcomes).not.toContain('moody checkEventForSpam suspended');
    expect(outcomes.filter((outcome) => outcome.endsWith('timeout'))).toHaveLength(8);
  });

  it('costs one timer for all calls, which is gone when nobody is waited for any more', async () => {
    const answers: (() => void)[] = [];
    const { modules, clock, outcomes } = host([
      'm',
      'spamChecker',
      { checkEventForSpam: () => new Promise<typeof NOT_SPAM>((resolve) => answers.push(() => resolve(NOT_SPAM))) },
      { timeLimitMs: 200 },
    ]);
    const ask = (): Promise<unknown> => modules.gate('checkEventForSpam', context, event);
    const first = [ask(), ask(), ask()];
    clock.pass(150);
    const second = [ask(), ask()];
    expect(clock.waiting).toBe(1);
    answers[1]?.();
    await first[1];
    clock.pass(50);
    await Promise.all(first);
    expect(outcomes.sort()).toEqual([
      'm checkEventForSpam ok',
      'm checkEventForSpam timeout',
      'm checkEventForSpam timeout',
    ]);
    expect(clock.waiting).toBe(1);
    for (const answer of answers) answer();
    await Promise.all(second);
    clock.pass(150);
    expect(clock.waiting).toBe(0);
    expect(outcomes.filter((outcome) => outcome.endsWith('ok'))).toHaveLength(3);
  });

  it('is given up in its time, too, when the next one is asked for somebody else meanwhile', async () => {
    const { modules, clock, outcomes } = host(
      ['slow', 'spamChecker', { checkEventForSpam: never }, { onError: 'allow', timeLimitMs: 200 }],
      ['next', 'spamChecker', { checkEventForSpam: never }, { onError: 'allow', timeLimitMs: 200 }],
    );
    void modules.gate('checkEventForSpam', context, event);
    clock.pass(120);
    void modules.gate('checkEventForSpam', context, event);
    clock.pass(80);
    expect(outcomes).toEqual(['slow checkEventForSpam timeout']);
    clock.pass(120);
    expect(outcomes).toEqual(['slow checkEventForSpam timeout', 'slow checkEventForSpam timeout']);
  });

  it('has its whole time, and no more, when the one before it took some', async () => {
    let answer: (() => void) | undefined;
    const { modules, clock, outcomes } = host(
      [
        'first',
        'spamChecker',
        { checkEventForSpam: () => new Promise<typeof NOT_SPAM>((resolve) => (answer ??= () => resolve(NOT_SPAM))) },
        { onError: 'allow', timeLimitMs: 200 },
      ],
      ['second', 'spamChecker', { checkEventForSpam: never }, { onError: 'allow', timeLimitMs: 200 }],
    );
    const verdict = modules.gate('checkEventForSpam', context, event);
    clock.pass(80);
    void modules.gate('checkEventForSpam', context, event);
    clock.pass(40);
    answer?.();
    await new Promise((resolve) => setImmediate(resolve));
    // The second module is asked at 120, and "first" has been thinking for somebody else since 80.
    clock.pass(80);
    expect(outcomes).toEqual(['first checkEventForSpam ok']);
    clock.pass(80);
    expect(outcomes).toEqual(['first checkEventForSpam ok', 'first checkEventForSpam timeout']);
    clock.pass(39);
    expect(outcomes).toHaveLength(2);
    clock.pass(1);
    expect(outcomes[2]).toBe('second checkEventForSpam timeout');
    expect((await verdict).allowed).toBe(true);
  });

  it('is not heard any more when it answers while the next one is asked, in whose log context nothing has changed', async () => {
    const answers: ((answer: typeof NOT_SPAM | Codes) => void)[] = [];
    const contexts: (string | undefined)[] = [];
    const checker = (name: string, timeLimitMs: number): Registration => [
      name,
      'spamChecker',
      {
        checkEventForSpam() {
          contexts.push(LogContext.current()?.requestId);
          return new Promise((resolve) => answers.push(resolve));
        },
      },
      { onError: 'allow', timeLimitMs },
    ];
    const { modules, clock, outcomes } = host(checker('first', 10), checker('second', 50), checker('third', 50));
    let settled: unknown;
    LogContext.run({ requestId: 'r1' }, () => {
      void modules.gate('checkEventForSpam', context, event).then((verdict) => (settled = verdict));
    });
    const turn = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));
    clock.pass(10);
    answers[0]?.(Codes.FORBIDDEN);
    await turn();
    expect([settled, outcomes]).toEqual([undefined, ['first checkEventForSpam timeout']]);
    answers[1]?.(NOT_SPAM);
    await turn();
    expect(settled).toBeUndefined();
    answers[2]?.(Codes.UNKNOWN);
    await turn();
    expect(settled).toMatchObject({ allowed: false, module: 'third', errcode: 'M_UNKNOWN' });
    expect(contexts).toEqual(['r1', 'r1', 'r1']);
    expect(outcomes.slice(1)).toEqual(['second checkEventForSpam ok', 'third checkEventForSpam refused']);
  });

  it('cannot answer twice through a promise whose then is its own', async () => {
    const odd = Promise.resolve<typeof NOT_SPAM>(NOT_SPAM);
    odd.then = ((taken: (value: unknown) => void) => {
      for (let i = 0; i < 3; i++) taken(Codes.FORBIDDEN);
      return odd;
    }) as typeof odd.then;
    const asked: string[] = [];
    const { modules, outcomes } = host(
      ['odd', 'spamChecker', { checkEventForSpam: () => odd }],
      [
        'next',
        'spamChecker',
        {
          async checkEventForSpam(): Promise<typeof NOT_SPAM> {
            asked.push('next');
            return NOT_SPAM;
          },
        },
      ],
    );
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ allowed: true });
    expect(asked).toEqual(['next']);
    expect(outcomes).toEqual(['odd checkEventForSpam ok', 'next checkEventForSpam ok']);
  });

  it('may reject after its time without harm', async () => {
    let reject = (_: Error): void => {};
    const { modules, clock } = host([
      'late',
      'spamChecker',
      { checkEventForSpam: () => new Promise<typeof NOT_SPAM>((_, no) => (reject = no)) },
      { timeLimitMs: 10 },
    ]);
    const verdict = modules.gate('checkEventForSpam', context, event);
    clock.pass(10);
    await verdict;
    reject(new Error('too late'));
    await new Promise((resolve) => setImmediate(resolve));
  });
});

it('names a module that keeps the process from working', async () => {
  const clock: HandClock[] = [];
  const told = host([
    'busy',
    'spamChecker',
    {
      checkEventForSpam() {
        clock[0]?.pass(150);
        return NOT_SPAM;
      },
    },
  ]);
  clock.push(told.clock);
  expect((await told.modules.gate('checkEventForSpam', context, event)).allowed).toBe(true);
  expect(told.logged[0]).toMatchObject({
    level: 'warn',
    message: 'A module kept the whole process from working',
    fields: { module: 'busy', callback: 'checkEventForSpam', blockedMs: 150 },
  });
});

it('logs failures of one callback at most once in ten seconds, and counts the rest', async () => {
  const { modules, logged, clock } = host(spamChecker('m', 42));
  for (let i = 0; i < 4; i++) await modules.gate('checkEventForSpam', context, event);
  expect(logged).toHaveLength(1);
  clock.pass(10_000);
  await modules.gate('checkEventForSpam', context, event);
  expect(logged).toHaveLength(2);
  expect(logged[1]?.fields).toMatchObject({ alsoUnlogged: 3 });
});

describe('arguments', () => {
  it('cannot be changed by a module, in no depth', async () => {
    const original = structuredClone(event);
    const { modules } = host([
      'vandal',
      'spamChecker',
      {
        checkEventForSpam(given) {
          const content = given.content as { body: string; nested: { list: [number, { deep: boolean }] } };
          expect(() => (content.body = 'changed')).toThrow(TypeError);
          expect(() => (content.nested.list[1].deep = false)).toThrow(TypeError);
          expect(() => content.nested.list.push(1 as never)).toThrow(TypeError);
          return NOT_SPAM;
        },
      },
    ]);
    expect((await modules.gate('checkEventForSpam', context, event)).allowed).toBe(true);
    expect(event).toEqual(original);
    expect(Object.isFrozen(event.content)).toBe(false);
  });

  it('include the context', async () => {
    const open: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
    const { modules } = host([
      'vandal',
      'spamChecker',
      {
        checkEventForSpam(_, given) {
          (given as { isAdmin: boolean }).isAdmin = true;
          return NOT_SPAM;
        },
      },
    ]);
    expect(await modules.gate('checkEventForSpam', open, event)).toMatchObject({ allowed: false, failed: true });
    expect(open.isAdmin).toBe(false);
  });

  it('make a module that tries fail, and nothing else', async () => {
    const { modules } = host([
      'vandal',
      'spamChecker',
      {
        checkEventForSpam(given) {
          (given as { sender: string }).sender = '@mallory:example.org';
          return NOT_SPAM;
        },
      },
    ]);
    expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ allowed: false, failed: true });
    expect(event.sender).toBe('@alice:example.org');
  });
});

describe('a transform', () => {
  it('hands each module the result of the one before', async () => {
    const append = (name: string): Registration => [
      name,
      'thirdPartyRules',
      {
        checkEventAllowed: async (given) => ({
          allowed: true,
          replacement: { content: { ...given.content, body: `${String(given.content.body)} ${name}` } },
        }),
      },
    ];
    const { modules } = host(append('one'), append('two'));
    const result = await modules.transform('checkEventAllowed', context, draft, state);
    expect(result).toMatchObject({
      allowed: true,
      value: { content: { body: 'hello one two' }, sender: draft.sender },
    });
    expect(draft.content.body).toBe('hello');
  });

  it('gives back the value itself when no module is there', async () => {
    const result = await host().modules.transform('checkEventAllowed', context, draft, state);
    expect(result.allowed && result.value).toBe(draft);
  });

  it('ends at a refusal', async () => {
    const { modules } = host(
      ['one', 'thirdPartyRules', { checkEventAllowed: async () => ({ allowed: false, message: 'no' }) }],
      ['two', 'thirdPartyRules', { checkEventAllowed: async () => true }],
    );
    expect(await modules.transform('checkEventAllowed', context, draft, state)).toMatchObject({
      allowed: false,
      message: 'no',
      status: 403,
      errcode: 'M_FORBIDDEN',
      module: 'one',
    });
  });

  it('lets nobody replace an event that is signed already', async () => {
    const { modules } = host([
      'm',
      'thirdPartyRules',
      { checkEventAllowed: async () => ({ allowed: true, replacement: { content: {} } }) },
    ]);
    expect(await modules.transform('checkEventAllowed', context, event, state)).toMatchObject({
      allowed: false,
      failed: true,
    });
  });

  it('replaces the body of a room creation, or refuses it by throwing', async () => {
    const requester = {
      userId: '@a:x',
      deviceId: undefined,
      isGuest: false,
      isAdmin: false,
      shadowBanned: false,
      appserviceId: undefined,
    };
    const { modules } = host(
      ['one', 'thirdPartyRules', { onCreateRoom: async (_, body) => ({ ...body, name: 'from one' }) }],
      ['two', 'thirdPartyRules', { onCreateRoom: async () => {} }],
    );
    expect(await modules.transform('onCreateRoom', context, requester, { topic: 't' }, false)).toEqual({
      allowed: true,
      value: { topic: 't', name: 'from one' },
    });
    const refusing = host([
      'm',
      'thirdPartyRules',
      { onCreateRoom: () => Promise.reject(MatrixError.forbidden('rooms are full')) },
    ]);
    expect(await refusing.modules.transform('onCreateRoom', context, requester, {}, false)).toMatchObject({
      allowed: false,
      failed: false,
      message: 'rooms are full',
    });
  });
});

describe('a provider', () => {
  const validity = (name: string, answer: unknown, policy?: Partial<ModulePolicy>): Registration => [
    name,
    'accountValidity',
    { isUserExpired: async () => answer as boolean },
    policy,
  ];

  it('is the first with an answer', async () => {
    const { modules } = host(validity('one', undefined), validity('two', false), validity('three', true));
    expect(await modules.provide('isUserExpired', context, '@a:x')).toBe(false);
    expect(await host(validity('one', undefined)).modules.provide('isUserExpired', context, '@a:x')).toBeUndefined();
    expect(await host().modules.provide('isUserExpired', context, '@a:x')).toBeUndefined();
  });

  it('fails the request when it fails, or is passed over with on_error: allow', async () => {
    const asking = host(validity('m', 'maybe')).modules.provide('isUserExpired', context, '@a:x');
    await expect(asking).rejects.toMatchObject({ status: 500, errcode: 'M_UNKNOWN' });
    const allowing = host(validity('m', 'maybe', { onError: 'allow' }), validity('two', true));
    expect(await allowing.modules.provide('isUserExpired', context, '@a:x')).toBe(true);
  });

  it('names a page for those whose limit is reached', async () => {
    const limits = [{ maxBytes: 1, timePeriodMs: 1, infoUri: 'https://x.example/more', canUpgrade: false }];
    const { modules } = host(['m', 'mediaRepository', { getMediaUploadLimitsForUser: async () => limits }]);
    expect(await modules.provide('getMediaUploadLimitsForUser', context, '@a:x')).toEqual(limits);
  });

  it.each([
    ['getRatelimitOverrideForUser', 'ratelimit', ['@a:x', 'rc_invites.per_room'], { perSecond: -1, burstCount: 1 }],
    ['getMediaUploadLimitsForUser', 'mediaRepository', ['@a:x'], [{ maxBytes: 1 }]],
    ['getMediaUploadLimitsForUser', 'mediaRepository', ['@a:x'], [{ maxBytes: 1, timePeriodMs: 1, infoUri: {} }]],
    ['getMediaUploadLimitsForUser', 'mediaRepository', ['@a:x'], [{ maxBytes: 1, timePeriodMs: 1, infoUri: 'more' }]],
    ['getMediaUploadLimitsForUser', 'mediaRepository', ['@a:x'], [{ maxBytes: 1, timePeriodMs: 1, canUpgrade: 'no' }]],
    ['minBatchSize', 'backgroundUpdateController', ['update', 'main'], 0],
  ] as const)('%s cannot answer rubbish', async (name, category, args, answer) => {
    const callbacks = {
      [name]: async () => answer,
      ...(name === 'minBatchSize' ? { onUpdate: async () => ({ durationMs: 1 }) } : {}),
    };
    const { modules } = host(['m', category, callbacks as never]);
    await expect(modules.provide(name, context, ...(args as unknown as never))).rejects.toMatchObject({
      status: 500,
    });
  });
});

describe('signing in', () => {
  const checker = (name: string, answer: unknown): Registration => [
    name,
    'passwordAuthProvider',
    {
      authCheckers: [
        {
          loginType: 'm.login.password',
          fields: ['password'],
          check: async (_user, _type, dict) => (dict.password === name ? (answer as undefined) : undefined),
        },
      ],
    },
  ];

  it('asks the checkers of the login type until one knows the user', async () => {
    const { modules } = host(checker('one', { userId: '@one:x' }), checker('two', { userId: '@two:x' }));
    expect([...modules.loginTypes]).toMatchObject([['m.login.password', { fields: ['password'] }]]);
    expect(await modules.checkAuth(context, 'u', 'm.login.password', { password: 'two' })).toEqual({
      userId: '@two:x',
    });
    expect(await modules.checkAuth(context, 'u', 'm.login.password', { password: 'x' })).toBeUndefined();
    expect(await modules.checkAuth(context, 'u', 'm.login.other', {})).toBeUndefined();
  });

  it('lets nobody in whom a module did not name properly', async () => {
    const { modules } = host(checker('one', { userId: 'one' }), checker('two', true));
    await expect(modules.checkAuth(context, 'u', 'm.login.password', { password: 'one' })).rejects.toMatchObject({
      status: 500,
    });
    await expect(modules.checkAuth(context, 'u', 'm.login.password', { password: 'two' })).rejects.toMatchObject({
      status: 500,
    });
  });

  it('cannot be undone by what is told after the login', async () => {
    const onLogin = async (): Promise<void> => {
      throw new Error('afterwards');
    };
    const { modules, logged } = host(checker('one', { userId: '@one:x', onLogin }));
    const success = await modules.checkAuth(context, 'u', 'm.login.password', { password: 'one' });
    await success?.onLogin?.({ user_id: '@one:x' });
    expect(logged[0]).toMatchObject({ level: 'error', fields: { module: 'one' } });
  });
});

describe('a merge', () => {
  it('unites presence by user, and everybody is everybody', async () => {
    const update = {
      userId: '@a:x',
      state: 'online',
      lastActiveTs: 0,
      lastFederationUpdateTs: 0,
      lastUserSyncTs: 0,
      statusMsg: undefined,
      currentlyActive: true,
    };
    const router = (name: string, users: string[], interested: string[] | typeof PRESENCE_ALL_USERS): Registration => [
      name,
      'presenceRouter',
      {
        getUsersForStates: async (updates) => new Map(users.map((user) => [user, updates])),
        getInterestedUsers: async () => interested,
      },
    ];
    const { modules } = host(router('one', ['@b:x'], ['@c:x']), router('two', ['@b:x', '@d:x'], ['@e:x']));
    const users = await modules.getUsersForStates(context, [update]);
    expect([...users.keys()].sort()).toEqual(['@b:x', '@d:x']);
    expect(users.get('@b:x')?.size).toBe(1);
    expect(await modules.getInterestedUsers(context, '@a:x')).toEqual(new Set(['@c:x', '@e:x']));
    const all = host(router('one', [], ['@c:x']), router('two', [], PRESENCE_ALL_USERS));
    expect(await all.modules.getInterestedUsers(context, '@a:x')).toBe(PRESENCE_ALL_USERS);
  });

  it('lets the later module win a field of unsigned', async () => {
    const { modules } = host(
      ['one', 'unsignedFields', { addFieldToUnsigned: async () => ({ a: 1, b: 1 }) }],
      ['two', 'unsignedFields', { addFieldToUnsigned: async () => ({ b: 2 }) }],
    );
    expect(await modules.addFieldToUnsigned(context, event)).toEqual({ a: 1, b: 2 });
  });

  it('takes nothing of an answer that is partly rubbish', async () => {
    const { modules } = host([
      'm',
      'presenceRouter',
      {
        getUsersForStates: async () =>
          new Map([
            ['@b:x', []],
            ['@c:x', 7 as never],
          ]),
        getInterestedUsers: async () => ['@d:x', 7 as never],
      },
      { onError: 'allow' },
    ]);
    expect((await modules.getUsersForStates(context, [])).size).toBe(0);
    expect(await modules.getInterestedUsers(context, '@a:x')).toEqual(new Set());
  });
});

describe('a notification', () => {
  it('reaches all modules whatever the others do, and never fails', async () => {
    const told: string[] = [];
    const listener = (name: string, fail: boolean): Registration => [
      name,
      'accountValidity',
      {
        onUserRegistration(userId) {
          told.push(`${name} ${userId}`);
          if (fail) throw new Error('boom');
        },
      },
    ];
    const { modules, logged } = host(listener('one', true), listener('two', false));
    await modules.notify('onUserRegistration', context, '@a:x');
    expect(told).toEqual(['one @a:x', 'two @a:x']);
    expect(logged).toMatchObject([{ level: 'error', fields: { module: 'one', callback: 'onUserRegistration' } }]);
  });

  it('of an added address reaches modules that know it by the old name, once', async () => {
    const told: string[] = [];
    const { modules } = host(
      ['old', 'thirdPartyRules', { onThreepidBind: (user) => void told.push(`old ${user}`) }],
      ['new', 'thirdPartyRules', { onAddUserThirdPartyIdentifier: (user) => void told.push(`new ${user}`) }],
    );
    await modules.notify('onAddUserThirdPartyIdentifier', context, '@a:x', 'email', 'a@example.org');
    expect(told).toEqual(['old @a:x', 'new @a:x']);
  });
});

it('keeps calls under way on the modules they began with when others are put in force', async () => {
  const told = host(spamChecker('one', Codes.FORBIDDEN));
  const calls: string[] = [];
  const registry = new ModuleRegistry(() => {});
  registry.addModule('two');
  const two: CallbackCategories['spamChecker'] = {
    checkEventForSpam(_: ModuleEvent, given: CallbackContext) {
      calls.push(given.source);
      return NOT_SPAM;
    },
  };
  registry.add('two', { onError: 'deny', timeLimitMs: undefined }, 'spamChecker', two);
  const before = told.modules.gate('checkEventForSpam', context, event);
  told.modules.install(registry.seal());
  expect(await before).toMatchObject({ module: 'one' });
  expect((await told.modules.gate('checkEventForSpam', context, event)).allowed).toBe(true);
  expect(calls).toEqual(['server']);
  expect(told.modules.modules).toEqual(['two']);
});

describe('the log', () => {
  it('names each fault of a callback once in a while, whatever else went wrong there', async () => {
    let answer: () => unknown = () => false;
    const { modules, clock, logged } = host([
      'm',
      'spamChecker',
      { checkEventForSpam: async () => answer() as typeof NOT_SPAM },
    ]);
    const here = (): never => {
      throw new TypeError(`one of many texts ${Math.random()}`);
    };
    const there = (): never => {
      throw new TypeError('elsewhere');
    };
    for (const next of [() => false, here, there, () => 42, here, here, there]) {
      answer = next;
      await modules.gate('checkEventForSpam', context, event);
    }
    const seen = logged.map(
      ({ message, fields }) => `${message} ${(fields?.['err'] as Error | undefined)?.message.slice(0, 9) ?? ''}`,
    );
    expect(seen).toEqual([
      'A module answered in a deprecated form ',
      'A module failed one of ma',
      'A module failed elsewhere',
      'A module gave an answer that means nothing ',
    ]);
    clock.pass(10_000);
    answer = here;
    await modules.gate('checkEventForSpam', context, event);
    expect(logged.at(-1)?.fields).toMatchObject({ alsoUnlogged: 2 });
  });

  it('has a bounded number of faults to tell apart', async () => {
    let fault = 0;
    const { modules, logged } = host([
      'm',
      'spamChecker',
      {
        checkEventForSpam() {
          const error = new Error('x');
          error.stack = `Error: x\n    at f (file.js:${fault++}:1)`;
          throw error;
        },
      },
    ]);
    for (let i = 0; i < 100; i++) await modules.gate('checkEventForSpam', context, event);
    expect(logged).toHaveLength(21);
  });
});
