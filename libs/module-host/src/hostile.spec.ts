import {
  type CallbackCategory,
  type CallbackInfo,
  type CallbackName,
  callbackTable,
  Codes,
  MatrixError,
  type ModuleEvent,
  type RoomStateView,
} from '@rookery/module-api';
import { type LogFields, Logger, SystemClock } from '@rookery/platform';
import { callbackContext } from './context.js';
import { ModuleDispatcher } from './dispatcher.js';
import { ModuleRegistry } from './registry.js';

const context = callbackContext(undefined, { source: 'client' });
const limitMs = 40;

const cycle: Record<string, unknown> = { errcode: 'M_FORBIDDEN', allowed: true };
cycle['extra'] = cycle;
cycle['replacement'] = { content: cycle };
const cyclicList: unknown[] = [];
cyclicList.push(cyclicList, cyclicList);
let deep: unknown = {};
for (let i = 0; i < 50_000; i++) deep = { deep };
const explosive = new Proxy(
  {},
  {
    get() {
      throw new Error('get');
    },
    has() {
      throw new Error('has');
    },
    ownKeys() {
      throw new Error('ownKeys');
    },
    getPrototypeOf() {
      throw new Error('getPrototypeOf');
    },
  },
);
const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};
const thrower = (name: string): object => ({
  get [name](): never {
    throw explosive;
  },
});
function* endless(): Iterable<string> {
  for (;;) yield '@a:example.org';
}
const longText = 'x'.repeat(5_000_000);
const hugeList: unknown = new Array(4_000_000_000);
class OddMap extends Map<unknown, unknown> {
  override *[Symbol.iterator](): MapIterator<[unknown, unknown]> {
    for (;;) yield ['@a:example.org', endless()];
  }
}

/** What a module might give, each made anew. */
const rubbish: Readonly<Record<string, () => unknown>> = {
  nothing: () => undefined,
  null: () => null,
  yes: () => true,
  no: () => false,
  number: () => 7,
  NaN: () => NaN,
  bigint: () => 7n,
  symbol: () => Symbol('x'),
  'empty text': () => '',
  'long text': () => longText,
  function: () => () => 'x',
  date: () => new Date(NaN),
  map: () => new Map([[Symbol('x'), cycle]]),
  'odd map': () => new OddMap(),
  'endless set': () => ({ [Symbol.iterator]: endless }),
  'huge list': () => hugeList,
  'list of itself': () => cyclicList,
  cycle: () => cycle,
  deep: () => deep,
  proxy: () => explosive,
  'revoked proxy': revoked,
  'replacement that is a proxy': () => ({ allowed: true, replacement: explosive }),
  'content that is a proxy': () => ({ allowed: true, replacement: { content: explosive } }),
  'content with a cycle': () => ({ allowed: true, replacement: { content: cycle } }),
  'refusal with a bigint': () => ({ errcode: 'M_X', extra: { n: 7n } }),
  'getter of errcode': () => thrower('errcode'),
  'getter of allowed': () => thrower('allowed'),
  'getter of userId': () => thrower('userId'),
  'getter of then': () => thrower('then'),
  'never settles': () => new Promise(() => {}),
  'thenable that never settles': () => ({ then() {} }),
  'thenable in a thenable': () => ({ then: (done: (value: unknown) => void) => done({ then() {} }) }),
  'thenable that throws': () => ({
    then() {
      throw explosive;
    },
  }),
  'thenable that settles twice': () => ({
    then(done: (value: unknown) => void, failed: (error: unknown) => void) {
      done(explosive);
      failed(explosive);
      done(true);
    },
  }),
  'odd Matrix error': () => ({ $$type: 'MatrixError', status: 'x', errcode: 7, extra: cycle, message: explosive }),
  'Matrix error with a proxy': () => Object.assign(new MatrixError(403, 'M_FORBIDDEN', 'no'), { extra: explosive }),
};

/** Ways to give something. */
const ways: Readonly<Record<string, (value: () => unknown) => unknown>> = {
  returned: (value) => value(),
  resolved: async (value) => value(),
  thrown(value) {
    throw value();
  },
  rejected: (value) => Promise.reject(value() as Error),
};

const event: ModuleEvent = {
  ...{ eventId: '$e', roomId: '!r:x', roomVersion: '12', type: 'm.room.message', stateKey: undefined, sender: '@a:x' },
  ...{ content: {}, originServerTs: 1, redacts: undefined, depth: 1, prevEventIds: [], authEventIds: [], pdu: {} },
};
const state = {} as RoomStateView;

/** Keeps what is logged, after writing it as JSON as a log does. */
class Log extends Logger {
  readonly lines: LogFields[] = [];
  debug(): void {}
  info(): void {}
  warn(_message: string, fields: LogFields = {}): void {
    this.#write(fields);
  }
  error(_message: string, fields: LogFields = {}): void {
    this.#write(fields);
  }
  isEnabled(): boolean {
    return true;
  }
  child(): Logger {
    return this;
  }
  #write(fields: LogFields): void {
    JSON.stringify({ ...fields, err: (fields['err'] as Error | undefined)?.stack });
    this.lines.push(fields);
  }
}

/** Asks one callback in the way that its kind is asked. */
async function ask(modules: ModuleDispatcher, name: CallbackName, kind: CallbackInfo['kind']): Promise<unknown> {
  const usual = name === 'getUsersForStates' ? [[]] : [event, { a: 1 }, 'x'];
  const args = name === 'checkEventAllowed' ? [{ ...event, eventId: undefined }, state] : usual;
  // Who is told by the old name is told together with the others.
  if (name === 'onThreepidBind')
    return modules.notify('onAddUserThirdPartyIdentifier', context, '@a:x', 'email', 'a@x');
  const face = modules as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  if (name === 'authCheckers') return modules.checkAuth(context, 'ann', 'org.example.x', {});
  if (name === 'check3pidAuth' || kind === 'merge') return face[name]!(context, ...args);
  return face[kind]!(name, context, ...args);
}

describe.each(Object.entries(callbackTable) as [CallbackName, CallbackInfo][])('whatever %s gives', (name, row) => {
  it.each(['deny', 'allow'] as const)(
    'is an answer, a refusal or a failure with the module’s name (%s)',
    async (onError) => {
      let given: () => unknown = () => undefined;
      const log = new Log();
      const outcomes: string[] = [];
      const observe = (module: string, callback: string, outcome: string): void => {
        outcomes.push(`${module} ${callback} ${outcome}`);
      };
      const make = (): ModuleDispatcher => {
        const modules = new ModuleDispatcher({ clock: new SystemClock(), log, observe });
        const registry = new ModuleRegistry(() => {});
        registry.addModule('hostile');
        const call = (): unknown => given();
        const category: CallbackCategory = row.category;
        const callbacks =
          name === 'authCheckers'
            ? { authCheckers: [{ loginType: 'org.example.x', fields: [], check: call }] }
            : category === 'presenceRouter'
              ? { getUsersForStates: call, getInterestedUsers: call }
              : { onUpdate: call, [name]: call };
        if (category !== 'backgroundUpdateController') delete (callbacks as Record<string, unknown>)['onUpdate'];
        registry.add('hostile', { onError, timeLimitMs: limitMs }, category, callbacks as never);
        modules.install(registry.seal());
        return modules;
      };
      const patient = name === 'onUpdate';
      const tries = Object.entries(rubbish).flatMap(([what, value]) =>
        Object.entries(ways).map(([way, give]) => ({ what: `${what}, ${way}`, give: () => give(value) })),
      );
      const endings = await Promise.all(
        tries
          // What waits on purpose may wait for a day.
          .filter(({ what }) => !patient || !/never settles|thenable in|then/.test(what))
          .map(async ({ what, give }) => {
            const modules = make();
            given = give;
            try {
              const answer = ask(modules, name, row.kind);
              return [what, 'answer', JSON.stringify(await answer)] as const;
            } catch (error) {
              if (!MatrixError.is(error)) throw new Error(`${what}: ${String(error)}`);
              JSON.stringify(error.toBody());
              return [what, `${error.status}`, error.errcode] as const;
            }
          }),
      );
      for (const [what, ending] of endings) {
        expect([what, ['answer', '500', '403', '400', '413'].includes(ending)]).toEqual([what, true]);
      }
      const failures = outcomes.filter((outcome) => !/ (ok|refused)$/.test(outcome));
      expect(new Set(outcomes.map((outcome) => outcome.replace(/ \w+$/, '')))).toEqual(new Set([`hostile ${name}`]));
      expect(failures.length).toBeGreaterThan(20);
      expect(log.lines.every((fields) => fields['module'] === 'hostile')).toBe(true);
    },
  );
});

it('a refusal with what no JSON can carry never reaches a client', async () => {
  const modules = new ModuleDispatcher();
  const registry = new ModuleRegistry(() => {});
  registry.addModule('hostile');
  const policy = { onError: 'deny', timeLimitMs: undefined } as const;
  let n = 0;
  registry.add('hostile', policy, 'spamChecker', {
    checkEventForSpam: () => ({
      get errcode() {
        // The second look would see something else.
        return n++ === 0 ? Codes.FORBIDDEN : (7 as never);
      },
    }),
  });
  modules.install(registry.seal());
  expect(await modules.gate('checkEventForSpam', context, event)).toMatchObject({ errcode: 'M_FORBIDDEN' });
});
