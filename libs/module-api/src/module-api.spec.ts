import {
  type CallbackInfo,
  DROP_SILENTLY,
  NOT_SPAM,
  PRESENCE_ALL_USERS,
  type PresenceRouterCallbacks,
  SOFT_FAIL,
  type SpamCheckerCallbacks,
  type StandardSchema,
  callbackTable,
  Codes,
  ConfigError,
  defineModule,
  isRookeryModule,
  mapUsernameToMxidLocalpart,
  MODULE_API_VERSION,
  RedirectError,
} from './index.js';

describe('a module', () => {
  const module = defineModule({ name: 'm', parseConfig: (raw) => String(raw), register() {} });

  it('carries a brand, a version, and what its author wrote', () => {
    expect(module).toMatchObject({ $$type: 'RookeryModule', name: 'm', apiVersion: MODULE_API_VERSION });
    expect(module.parseConfig(7)).toBe('7');
    expect(Object.isFrozen(module)).toBe(true);
    expect(defineModule({ name: 'm', apiVersion: '0.9', parseConfig: () => 0, register() {} }).apiVersion).toBe('0.9');
  });

  it('is known by its brand alone, also from another copy of the package', () => {
    expect(isRookeryModule({ ...module })).toBe(true);
    expect(isRookeryModule({ name: 'm' })).toBe(false);
    expect(isRookeryModule(null)).toBe(false);
  });

  it('without parseConfig takes no config', () => {
    const plain = defineModule({ name: 'plain', register() {} });
    expect(plain.parseConfig(undefined)).toBeUndefined();
    expect(plain.parseConfig(null)).toBeUndefined();
    expect(() => plain.parseConfig({ words: [] })).toThrow('this module takes no config');
  });

  describe('with a schema', () => {
    /** A library's schema as small as it can be. */
    const words: StandardSchema<{ readonly words: readonly string[] }> = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate(value) {
          const { words: given = [] } = value as { words?: unknown[] };
          const wrong = given.flatMap((word, i) => (typeof word === 'string' ? [] : [i]));
          if (wrong.length === 0) return { value: { words: given as string[] } };
          return { issues: wrong.map((i) => ({ message: 'expected a text', path: [{ key: 'words' }, i] })) };
        },
        jsonSchema: { input: ({ target }) => ({ $schema: target, type: 'object', none: undefined }) },
      },
    };

    it('hands on what the schema makes of its config, which an entry may leave out', () => {
      let first: string | undefined;
      const module = defineModule({
        name: 'm',
        configSchema: words,
        register(_api, config) {
          first = config.words[0];
        },
      });
      expect(module.parseConfig({ words: ['a'] })).toEqual({ words: ['a'] });
      expect(module.parseConfig(undefined)).toEqual({ words: [] });
      expect(module.parseConfig(null)).toEqual({ words: [] });
      void module.register({} as never, { words: ['b'] });
      expect(first).toBe('b');
      expect(module.configJsonSchema).toEqual({ $schema: 'draft-2020-12', type: 'object' });
    });

    it('says everything that is wrong', () => {
      const module = defineModule({ name: 'm', configSchema: words, register() {} });
      let error: unknown;
      try {
        module.parseConfig({ words: [1, 'a', 2] });
      } catch (thrown) {
        error = thrown;
      }
      expect(error).toMatchObject({
        $$type: 'ConfigError',
        message: 'expected a text',
        path: ['words', 0],
        others: [{ message: 'expected a text', path: ['words', 2] }],
      });
    });

    it('takes one way of checking, and none that makes the server wait', () => {
      const both = { name: 'm', configSchema: words, parseConfig: () => ({ words: [] }), register() {} };
      expect(() => defineModule(both)).toThrow('not both');
      const late: StandardSchema = {
        '~standard': { version: 1, vendor: 'test', validate: () => Promise.reject(new Error('late')) },
      };
      expect(() => defineModule({ name: 'm', configSchema: late, register() {} }).parseConfig({})).toThrow(
        'asynchronously',
      );
      const none = defineModule({ name: 'm', configSchema: {} as StandardSchema, register() {} });
      expect(() => none.parseConfig({})).toThrow('configSchema is no Standard Schema');
      const own = defineModule({ name: 'm', configSchema: late, configJsonSchema: { type: 'null' }, register() {} });
      expect(own.configJsonSchema).toEqual({ type: 'null' });
    });
  });

  it('keeps `this` for authors who write classes', () => {
    class Author {
      readonly name = 'author';
      readonly #words = ['a'];
      parseConfig(): string[] {
        return this.#words;
      }
      register(): void {}
    }
    expect(defineModule(new Author()).parseConfig(undefined)).toEqual(['a']);
  });
});

it('verdicts keep their types in functions of every kind', () => {
  const callbacks: SpamCheckerCallbacks = {
    async checkEventForSpam({ type }) {
      if (type === 'm.room.message') return NOT_SPAM;
      return NOT_SPAM;
    },
    userMayInvite: async () => DROP_SILENTLY,
    federatedUserMayInvite: async () => SOFT_FAIL,
  };
  const interested: PresenceRouterCallbacks['getInterestedUsers'] = async () => PRESENCE_ALL_USERS;
  expect(Object.keys(callbacks)).toHaveLength(3);
  expect(interested).toBeInstanceOf(Function);
});

it('errors are known by their brands', () => {
  const copy = { $$type: 'ConfigError', message: 'x', path: [] };
  expect(ConfigError.is(new ConfigError('x', ['words', 1]))).toBe(true);
  expect(ConfigError.is(copy)).toBe(true);
  expect(ConfigError.is(new Error('x'))).toBe(false);
  expect(RedirectError.is(new RedirectError('https://example.org/'))).toBe(true);
  expect(RedirectError.is(copy)).toBe(false);
});

it('every code is a Matrix error code', () => {
  for (const code of Object.values(Codes)) expect(code).toMatch(/^(M|ORG_MATRIX)_[A-Z0-9_]+$/);
  expect(new Set(Object.values(Codes)).size).toBe(Object.keys(Codes).length);
});

describe('the table of callbacks', () => {
  const rows = Object.entries(callbackTable) as [string, CallbackInfo][];

  it('has the field’s fifty-one, and ours', () => {
    expect(rows.filter(([, { snakeCase }]) => snakeCase !== undefined)).toHaveLength(51);
    expect(rows.filter(([, { snakeCase }]) => snakeCase === undefined).map(([name]) => name)).toEqual([
      'checkCanRemoveHistory',
      'onRoomUpgraded',
      'onMediaStored',
    ]);
    expect(new Set(rows.map(([, { category }]) => category)).size).toBe(11);
  });

  it('names each as the field does, in camelCase', () => {
    for (const [name, { snakeCase }] of rows) {
      const camel = snakeCase
        ?.replace(/_callback$/, '')
        .replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
      if (camel !== undefined) expect(name).toBe(camel);
    }
  });

  it('names a replacement that exists for what is deprecated', () => {
    for (const [, { deprecated }] of rows)
      if (deprecated !== undefined) expect(callbackTable).toHaveProperty(deprecated);
  });
});

it.each([
  ['alice', false, 'alice'],
  ['Alice.Smith', false, 'alice.smith'],
  ['Alice_S', true, '=5falice___s'],
  ['_bob', false, '=5fbob'],
  ['a=b', false, 'a=3db'],
  ['né', false, 'n=c3=a9'],
  ['ÄB', false, '=c3=84b'],
  ['a b@c', false, 'a=20b=40c'],
  ['a/b-c+d_e', false, 'a/b-c+d_e'],
])('makes the localpart of %p', (username, caseSensitive, localpart) => {
  expect(mapUsernameToMxidLocalpart(username, caseSensitive)).toBe(localpart);
});
