import { type CallbackCategories, type CallbackCategory, NOT_SPAM } from '@rookery/module-api';
import { currentOwner } from './owner.js';
import { ModuleRegistry, type SealedRegistry } from './registry.js';

const policy = { onError: 'deny', timeLimitMs: undefined } as const;

function registering(...registrations: [module: string, category: CallbackCategory, callbacks: unknown][]): {
  seal: () => SealedRegistry;
  warnings: string[];
} {
  const warnings: string[] = [];
  const registry = new ModuleRegistry((module, message) => void warnings.push(`${module}: ${message}`));
  const seen = new Set<string>();
  const seal = (): SealedRegistry => {
    for (const [module, category, callbacks] of registrations) {
      if (!seen.has(module)) registry.addModule(module);
      seen.add(module);
      registry.add(module, policy, category, callbacks as CallbackCategories[typeof category]);
    }
    return registry.seal();
  };
  return { seal, warnings };
}

const nothing = async (): Promise<void> => {};

it.each([
  [
    'an unknown callback',
    'spamChecker',
    { checkEvent: nothing },
    /checkEvent is no callback: registerSpamCheckerCallbacks takes .*checkEventForSpam/,
  ],
  ['a name of the field', 'spamChecker', { check_event_for_spam: nothing }, /it is called checkEventForSpam here/],
  [
    'a callback of another category',
    'spamChecker',
    { onNewEvent: nothing },
    /registered by registerThirdPartyRulesCallbacks/,
  ],
  ['what is no function', 'spamChecker', { checkEventForSpam: true }, /checkEventForSpam is not a function/],
  ['no object', 'spamChecker', undefined, /takes an object of callbacks/],
  ['auth checkers that are no list', 'passwordAuthProvider', { authCheckers: {} }, /authCheckers is not a list/],
  [
    'an incomplete auth checker',
    'passwordAuthProvider',
    { authCheckers: [{ loginType: 'm.login.password' }] },
    /\{ loginType, fields, check \}/,
  ],
  [
    'half a presence router',
    'presenceRouter',
    { getInterestedUsers: nothing },
    /getInterestedUsers needs getUsersForStates beside it/,
  ],
  [
    'the other half',
    'presenceRouter',
    { getUsersForStates: nothing },
    /getUsersForStates needs getInterestedUsers beside it/,
  ],
  [
    'half a background controller',
    'backgroundUpdateController',
    { minBatchSize: nothing },
    /minBatchSize needs onUpdate beside it/,
  ],
] as const)('refuses %s', (_, category, callbacks, message) => {
  expect(registering(['m', category, callbacks]).seal).toThrow(message);
});

it.each(['userMayCreateRoomWithInvites', 'user_may_create_room_with_invites'])('refuses %s with advice', (name) => {
  const { seal } = registering(['old', 'spamChecker', { [name]: nothing }]);
  expect(seal).toThrow(
    /module old: .* is no callback any more: .*userMayInvite together with api\.getRoomState, or onCreateRoom/,
  );
});

it('refuses a callback that one module registers twice', () => {
  const { seal } = registering(
    ['m', 'spamChecker', { checkEventForSpam: nothing }],
    ['m', 'spamChecker', { checkEventForSpam: nothing }],
  );
  expect(seal).toThrow(/checkEventForSpam was registered twice/);
});

it('refuses two modules of one name', () => {
  const registry = new ModuleRegistry(() => {});
  registry.addModule('m');
  expect(() => registry.addModule('m')).toThrow(/Two modules are called m/);
});

it('refuses what comes after sealing', () => {
  const registry = new ModuleRegistry(() => {});
  registry.addModule('late');
  registry.seal();
  const registerLate = (): void => registry.add('late', policy, 'spamChecker', { checkEventForSpam: () => NOT_SPAM });
  expect(registerLate).toThrow(/called too late/);
});

it('refuses a second module for the legacy renewal endpoints', () => {
  const { seal } = registering(
    ['one', 'accountValidity', { onLegacyRenew: nothing }],
    ['two', 'accountValidity', { onLegacyRenew: nothing }],
  );
  expect(seal).toThrow(/module two: onLegacyRenew is registered by one already/);
});

it('asks only the first background controller, and says so', () => {
  const { seal, warnings } = registering(
    ['one', 'backgroundUpdateController', { onUpdate: nothing }],
    ['two', 'backgroundUpdateController', { onUpdate: nothing, defaultBatchSize: nothing }],
  );
  const { handlers } = seal();
  expect(handlers.onUpdate?.map(({ module }) => module)).toEqual(['one']);
  expect(handlers.defaultBatchSize).toBeUndefined();
  expect(warnings.join('\n')).toMatch(/two: one registers backgroundUpdateController already; onUpdate of/);
  expect(warnings.join('\n')).toMatch(/two: .*; defaultBatchSize of/);
});

it('refuses modules that disagree about the fields of a login type', () => {
  const checker = (fields: string[]): object => ({
    authCheckers: [{ loginType: 'org.example.card', fields, check: nothing }],
  });
  const agree = registering(
    ['one', 'passwordAuthProvider', checker(['pin', 'card'])],
    ['two', 'passwordAuthProvider', checker(['card', 'pin'])],
  );
  expect(agree.seal().loginTypes.get('org.example.card')?.handlers).toHaveLength(2);
  const disagree = registering(
    ['one', 'passwordAuthProvider', checker(['pin'])],
    ['two', 'passwordAuthProvider', checker(['card'])],
  );
  expect(disagree.seal).toThrow(/module two: org\.example\.card needs the fields card here, but pin in one/);
});

it('gives each callback its time, which the entry may change, but never that of one who waits on purpose', () => {
  const budgets = (timeLimitMs: number | undefined): (number | undefined)[] => {
    const registry = new ModuleRegistry(() => {});
    registry.addModule('m');
    const given = { onError: 'deny', timeLimitMs } as const;
    registry.add('m', given, 'spamChecker', { checkEventForSpam: () => NOT_SPAM });
    registry.add('m', given, 'passwordAuthProvider', { check3pidAuth: () => undefined, onLoggedOut: nothing });
    registry.add('m', given, 'backgroundUpdateController', { onUpdate: () => ({ durationMs: 100 }) });
    const { handlers } = registry.seal();
    return (['checkEventForSpam', 'check3pidAuth', 'onLoggedOut', 'onUpdate'] as const).map(
      (name) => handlers[name]?.[0]?.timeLimitMs,
    );
  };
  expect(budgets(undefined)).toEqual([5_000, 20_000, 5_000, 86_400_000]);
  expect(budgets(300)).toEqual([300, 300, 300, 86_400_000]);
});

it('warns of a deprecated callback', () => {
  const { seal, warnings } = registering(['m', 'thirdPartyRules', { onThreepidBind: nothing }]);
  seal();
  expect(warnings.join('\n')).toContain('m: onThreepidBind is deprecated: use onAddUserThirdPartyIdentifier');
});

it('takes an instance of a class, with its helpers and its own this', async () => {
  class Base {
    readonly answer: typeof NOT_SPAM = NOT_SPAM;
    async checkEventForSpam(): Promise<typeof NOT_SPAM> {
      return this.help();
    }
    help(): typeof NOT_SPAM {
      return this.answer;
    }
  }
  class Checker extends Base {}
  const sealed = registering(['m', 'spamChecker', new Checker()]).seal();
  expect(Object.keys(sealed.handlers)).toEqual(['checkEventForSpam']);
  expect(await sealed.handlers.checkEventForSpam?.[0]?.call()).toBe(NOT_SPAM);
  class Old {
    async user_may_create_room_with_invites(): Promise<boolean> {
      return true;
    }
  }
  expect(registering(['m', 'spamChecker', new Old()]).seal).toThrow(/no callback any more/);
});

describe('sign-in providers', () => {
  const whole = {
    id: 'tickets',
    name: 'Tickets',
    begin: () => ({ redirect: 'https://tickets.example/' }),
    callback: () => ({ redirect: 'https://tickets.example/' }),
    profile: () => ({}),
  };
  const register = (...providers: [module: string, provider: unknown][]): SealedRegistry => {
    const registry = new ModuleRegistry(() => {});
    for (const name of new Set(providers.map(([module]) => module))) registry.addModule(name);
    for (const [module, provider] of providers) registry.addIdentityProvider(module, provider as typeof whole);
    return registry.seal();
  };

  it('several of one module are known by their ids', () => {
    const { identityProviders } = register(['a', whole], ['a', { ...whole, id: 'more' }]);
    expect([...identityProviders].map(([id, { module }]) => [id, module])).toEqual([
      ['tickets', 'a'],
      ['more', 'a'],
    ]);
  });

  it('may be frozen, and run as their module', async () => {
    const refresh = () => ({ tokens: currentOwner()?.name });
    const frozen = Object.freeze({ ...whole, refresh });
    const provider = register(['a', frozen]).identityProviders.get('tickets')?.provider;
    expect('refresh' in provider!).toBe(true);
    expect(await provider?.refresh?.(undefined)).toEqual({ tokens: 'a' });
  });

  it.each<[string, unknown, RegExp]>([
    ['nothing', undefined, /takes an object/],
    ['no id', { ...whole, id: undefined }, /is no id/],
    ['an id that no client could ask for', { ...whole, id: 'a/b' }, /"a\/b" is no id/],
    ['an id of the server', { ...whole, id: 'oidc-x' }, /belongs to the server/],
    ['no name', { ...whole, name: '' }, /no name/],
    ['an icon from elsewhere', { ...whole, icon: 'https://a.example/b.png' }, /no mxc: URI/],
    ['no callback', { ...whole, callback: undefined }, /no callback\(\)/],
    ['a logout that is none', { ...whole, logout: true }, /logout of tickets is no function/],
  ])('refuses %s', (_, provider, words) => {
    expect(() => register(['a', provider])).toThrow(words);
  });

  it('refuses an id that another module has', () => {
    expect(() => register(['a', whole], ['b', whole])).toThrow(/module b: .*a registers a provider tickets already/);
  });
});
