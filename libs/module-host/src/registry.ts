import {
  type AuthChecker,
  type CallbackCategories,
  type CallbackCategory,
  type CallbackInfo,
  type CallbackName,
  callbackTable,
  registrationMethods,
  type IdentityProvider,
  type MediaServerSettings,
  type MediaStorageProvider,
  type OidcMappingProvider,
  type SamlMappingProvider,
  type WebHandler,
} from '@rookery/module-api';
import { ModuleLoadError } from './errors.js';
import type { CallbackFigures } from './figures.js';
import { type MessageAnswer, MessageAnswerList, type MessageAnswers } from './message-answers.js';
import { type Owner, ownedBy, runAs } from './owner.js';
import { samePath, type WebResource, webResource } from './web-resources.js';

/** What the settings say about a module's failures. */
export interface ModulePolicy {
  /** What becomes of a request when a callback fails. */
  readonly onError: 'deny' | 'allow';
  /** Time budget of one call; `undefined` for the default: 5 seconds for most. */
  readonly timeLimitMs: number | undefined;
  /** Where it runs. */
  readonly isolate?: 'thread' | undefined;
  /** Whether its judgements are only written down. */
  readonly shadow?: boolean | undefined;
}

/** How a callback has done of late; kept with it, for as long as its registry is in force. */
export interface Health {
  /** For whom it hung without an answer since, how often in a row, and until when it is not asked for them. */
  readonly hung: Map<string, { readonly timeouts: number; readonly suspendedUntilMs: number }>;
  /** Who ran out of time since anybody was answered last; no more than it takes to count as dead for everybody. */
  readonly unanswered: Set<string>;
  /** Whose questions it is tried with in the background, while it counts as dead. */
  readonly probing: Set<string>;
  /** When it may be tried next with a question of somebody for whom it hung. */
  probeAgainAtMs: number;
  /** By fault: each is logged at most once in a while; how often it was not. */
  readonly logged: Map<string, { readonly nextAtMs: number; unlogged: number }>;
  /** What is counted of it, from its first call on. */
  figures: CallbackFigures | undefined;
}

/** One callback of one module. */
export interface Handler {
  readonly module: string;
  readonly callback: CallbackName;
  readonly onError: 'deny' | 'allow';
  readonly timeLimitMs: number;
  /** Runs as the module's. */
  readonly call: (...args: readonly unknown[]) => unknown;
  readonly owner: Owner;
  readonly health: Health;
  /** Whether it runs beside the server, so that several can judge at the same time. */
  readonly isBeside: boolean;
  /** Whether what it says is only written down. */
  readonly isShadow: boolean;
}

/** A login type that modules check: the fields it needs and who checks. */
export interface LoginType {
  readonly fields: readonly string[];
  readonly handlers: readonly Handler[];
}

/** What modules provide by name, for other settings to refer to. */
export interface Providers {
  mediaStorage: MediaStorageProvider;
  oidcMapping: OidcMappingProvider;
  samlMapping: SamlMappingProvider;
}

/** What of the server's settings each kind is made from, beside its own. */
export interface ProviderSurroundings {
  mediaStorage: MediaServerSettings;
  oidcMapping: void;
  samlMapping: void;
}

/** Makes a provider from the `config` of the setting that names it. */
export interface ProviderFactory<Kind extends keyof Providers> {
  readonly module: string;
  readonly create: (config: unknown, server: ProviderSurroundings[Kind]) => Providers[Kind];
}

/** A place where people sign on that a module registered. */
export interface ModuleIdentityProvider {
  readonly module: string;
  /** Its methods run as the module's. */
  readonly provider: IdentityProvider;
}

type ProviderMaps = { readonly [Kind in keyof Providers]: ReadonlyMap<string, ProviderFactory<Kind>> };

/** Everything that modules registered, in its final form. */
export interface SealedRegistry {
  /** Names and versions, in the order of the settings. */
  readonly modules: readonly string[];
  /** Only callbacks that somebody registered have an entry. */
  readonly handlers: Readonly<Partial<Record<CallbackName, readonly Handler[]>>>;
  /** Judges whose judgements count for nothing, as {@link SealedRegistry.handlers}. */
  readonly shadows: Readonly<Partial<Record<CallbackName, readonly Handler[]>>>;
  /** What modules answer each other. */
  readonly messages: MessageAnswers;
  readonly loginTypes: ReadonlyMap<string, LoginType>;
  /** In the order of registration. */
  readonly webResources: readonly WebResource[];
  readonly providers: ProviderMaps;
  /** By id, in the order of registration. */
  readonly identityProviders: ReadonlyMap<string, ModuleIdentityProvider>;
}

/** A server without modules. */
export const EMPTY_REGISTRY: SealedRegistry = Object.freeze({
  modules: [],
  handlers: Object.freeze({}),
  shadows: Object.freeze({}),
  messages: new Map(),
  loginTypes: new Map(),
  webResources: [],
  providers: { mediaStorage: new Map(), oidcMapping: new Map(), samlMapping: new Map() },
  identityProviders: new Map(),
});

const table: Readonly<Record<CallbackName, CallbackInfo>> = callbackTable;

/** Time budget of a call where neither the module's entry nor {@link slow} says otherwise. */
const timeLimitMs = 5_000;
/** Callbacks that may ask something slow before the answer: a directory, a mail server. */
const slow: Readonly<Partial<Record<CallbackName, number>>> = {
  authCheckers: 20_000,
  check3pidAuth: 20_000,
  onLegacySendMail: 20_000,
};
/** Callbacks that wait on purpose, and that no entry can hurry. */
const patient: Readonly<Partial<Record<CallbackName, number>>> = { onUpdate: 86_400_000 };

/** Callbacks that once existed elsewhere, and what to use now. */
const removed: ReadonlyMap<string, string> = new Map([
  [
    'userMayCreateRoomWithInvites',
    'it was removed: use userMayInvite together with api.getRoomState, or onCreateRoom, whose request names the invited users',
  ],
]);

/** Ids of the sign-in providers that the settings name. */
const serverProviders = /^(?:cas|saml|oidc|oidc-.*)$/;

const camelCase = (name: string): string => name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
const snakeCase = new Map(
  Object.entries(table).flatMap(([name, info]) => (info.snakeCase === undefined ? [] : [[info.snakeCase, name]])),
);

/** Collects what modules register; {@link ModuleRegistry.seal} ends it. */
export class ModuleRegistry {
  readonly #modules = new Map<string, Owner>();
  readonly #handlers = new Map<CallbackName, Handler[]>();
  readonly #shadows = new Map<CallbackName, Handler[]>();
  readonly #messages = new MessageAnswerList();
  readonly #loginTypes = new Map<string, { fields: readonly string[]; handlers: Handler[] }>();
  readonly #webResources: WebResource[] = [];
  readonly #providers = {
    mediaStorage: new Map<string, ProviderFactory<'mediaStorage'>>(),
    oidcMapping: new Map<string, ProviderFactory<'oidcMapping'>>(),
    samlMapping: new Map<string, ProviderFactory<'samlMapping'>>(),
  };
  readonly #identityProviders = new Map<string, ModuleIdentityProvider>();
  #sealed = false;

  /** @param warn told of what is odd, but no reason to stop */
  constructor(private readonly warn: (module: string, message: string) => void) {}

  /**
   * @param owner whom the code of its callbacks belongs to
   * @throws ModuleLoadError when the name is taken
   */
  addModule(module: string, owner: Owner = { name: module }): void {
    if (this.#modules.has(module)) {
      throw new ModuleLoadError(
        module,
        `Two modules are called ${module}: remove one of their entries from the settings`,
      );
    }
    this.#modules.set(module, owner);
  }

  /**
   * Takes the callbacks of one category.
   * @throws ModuleLoadError for unknown, removed, misplaced and repeated callbacks, for what is no function, and after
   *   {@link seal}
   */
  add<Category extends CallbackCategory>(
    module: string,
    policy: ModulePolicy,
    category: Category,
    callbacks: CallbackCategories[Category],
  ): void {
    const method = registrationMethods[category];
    if (this.#sealed)
      throw new ModuleLoadError(module, `${method} was called too late: register callbacks in register()`);
    if (typeof callbacks !== 'object' || callbacks === null) {
      throw new ModuleLoadError(module, `${method} takes an object of callbacks`);
    }
    const names = callbackNames(callbacks);
    if (names.length === 0) this.warn(module, `${method} was called without a callback`);
    for (const name of names) {
      const value = (callbacks as Record<string, unknown>)[name];
      if (value === undefined) continue;
      const info = this.#check(module, category, method, name);
      if (name === 'authCheckers') this.#addAuthCheckers(module, policy, value);
      else this.#addHandler(module, policy, name as CallbackName, info, callbacks, value);
    }
  }

  /** Takes a path; one that an earlier module has stays with that one. @throws ModuleLoadError */
  addWebResource(module: string, path: string, handler: WebHandler): void {
    this.assertOpen(module, 'registerWebResource');
    const resource = webResource(module, path, handler, this.#ownerOf(module));
    const other = this.#webResources.find((earlier) => samePath(earlier, resource));
    if (other) this.warn(module, `${path} is answered by ${other.module} already`);
    else this.#webResources.push(resource);
  }

  /** Takes a provider that settings refer to by name. @throws ModuleLoadError when the name is taken */
  addProvider<Kind extends keyof Providers>(
    module: string,
    kind: Kind,
    name: string,
    create: ProviderFactory<Kind>['create'],
  ): void {
    this.assertOpen(module, `register ${kind}`);
    const known = this.#providers[kind] as unknown as Map<string, ProviderFactory<Kind>>;
    const other = known.get(name);
    if (typeof name !== 'string' || name === '' || typeof create !== 'function') {
      throw new ModuleLoadError(module, `A provider (${kind}) needs a name and a function that makes it`);
    }
    if (other) throw new ModuleLoadError(module, `${other.module} provides ${name} (${kind}) already`);
    const owner = this.#ownerOf(module);
    known.set(name, { module, create: (config, server) => ownedBy(owner, runAs(owner, create, config, server)) });
  }

  /** Takes a place where people sign on. @throws ModuleLoadError when its id is taken or the server's, or a part is missing */
  addIdentityProvider(module: string, provider: IdentityProvider): void {
    this.assertOpen(module, 'registerIdentityProvider');
    const wrong = (what: string): ModuleLoadError => new ModuleLoadError(module, `registerIdentityProvider: ${what}`);
    if (typeof provider !== 'object' || provider === null) throw wrong('takes an object');
    const { id, name, icon, brand } = provider;
    if (typeof id !== 'string' || !/^[\w.~-]{1,255}$/.test(id))
      throw wrong(`${JSON.stringify(id)} is no id: take 1 to 255 of A-Z, a-z, 0-9, "-", ".", "_" and "~"`);
    if (serverProviders.test(id)) throw wrong(`the id ${id} belongs to the server`);
    const other = this.#identityProviders.get(id);
    if (other) throw wrong(`${other.module} registers a provider ${id} already`);
    if (typeof name !== 'string' || name === '') throw wrong(`${id} has no name for people`);
    for (const [key, value] of Object.entries({ icon, brand })) {
      if (value !== undefined && typeof value !== 'string') throw wrong(`the ${key} of ${id} is no text`);
    }
    if (icon !== undefined && !icon.startsWith('mxc://')) throw wrong(`the icon of ${id} is no mxc: URI`);
    for (const method of ['begin', 'callback', 'profile'] as const) {
      if (typeof provider[method] !== 'function') throw wrong(`${id} has no ${method}()`);
    }
    for (const method of ['logout', 'refresh'] as const) {
      if (provider[method] !== undefined && typeof provider[method] !== 'function')
        throw wrong(`${method} of ${id} is no function`);
    }
    this.#identityProviders.set(id, Object.freeze({ module, provider: ownedBy(this.#ownerOf(module), provider) }));
  }

  /** Takes what a module answers others. @throws ModuleLoadError */
  addMessageAnswer(module: string, policy: ModulePolicy, question: string, answer: MessageAnswer['answer']): void {
    this.assertOpen(module, 'messages.answer');
    const { timeLimitMs: limit } = policy;
    const owner = this.#ownerOf(module);
    this.#messages.add(module, question, { owner, answer, ...(limit === undefined ? {} : { timeLimitMs: limit }) });
  }

  /** What the modules that have registered so far answer. */
  get messages(): MessageAnswers {
    return this.#messages.answers;
  }

  /** Says that what a module in shadow provides is not used. */
  notInShadow(module: string, what: string): void {
    this.warn(module, `it runs in shadow: its ${what} is not used`);
  }

  /** @throws ModuleLoadError after {@link seal} */
  assertOpen(module: string, method: string): void {
    if (this.#sealed) throw new ModuleLoadError(module, `${method} was called too late: it belongs into register()`);
  }

  /**
   * Ends registration.
   * @throws ModuleLoadError when callbacks that belong together are not
   */
  seal(): SealedRegistry {
    this.#sealed = true;
    this.#needTogether('getUsersForStates', 'getInterestedUsers');
    const update = this.#handlers.get('onUpdate')?.[0]?.module;
    for (const name of ['defaultBatchSize', 'minBatchSize'] as const) {
      const module = this.#handlers.get(name)?.[0]?.module;
      if (module !== undefined && module !== update)
        throw new ModuleLoadError(module, `${name} needs onUpdate beside it`);
    }
    // Whoever is told by the deprecated name is told together with the others.
    const bind = this.#handlers.get('onThreepidBind');
    if (bind) {
      const add = this.#handlers.get('onAddUserThirdPartyIdentifier') ?? [];
      const modules = [...this.#modules.keys()];
      const order = (handler: Handler): number => modules.indexOf(handler.module);
      const both = [...add, ...bind].sort((a, b) => order(a) - order(b));
      this.#handlers.set('onAddUserThirdPartyIdentifier', both);
      this.#handlers.delete('onThreepidBind');
    }
    return Object.freeze({
      modules: Object.freeze([...this.#modules.keys()]),
      handlers: Object.freeze(Object.fromEntries(this.#handlers)),
      shadows: Object.freeze(Object.fromEntries(this.#shadows)),
      messages: this.#messages.answers,
      loginTypes: this.#loginTypes,
      webResources: Object.freeze([...this.#webResources]),
      providers: this.#providers,
      identityProviders: this.#identityProviders,
    });
  }

  /** The module that registered callbacks of a category first. */
  #firstOf(category: CallbackCategory): string | undefined {
    for (const [name, [first]] of this.#handlers) if (table[name].category === category) return first?.module;
    return undefined;
  }

  #check(module: string, category: CallbackCategory, method: string, name: string): CallbackInfo {
    const advice = removed.get(name) ?? removed.get(camelCase(name));
    if (advice !== undefined) throw new ModuleLoadError(module, `${name} is no callback any more: ${advice}`);
    if (!Object.hasOwn(table, name)) {
      const meant = snakeCase.get(name);
      const hint =
        meant === undefined ? `${method} takes ${namesOf(category).join(', ')}` : `it is called ${meant} here`;
      throw new ModuleLoadError(module, `${name} is no callback: ${hint}`);
    }
    const info = table[name as CallbackName];
    if (info.category !== category) {
      throw new ModuleLoadError(
        module,
        `${name} is registered by ${registrationMethods[info.category]}, not by ${method}`,
      );
    }
    if (info.deprecated !== undefined) this.warn(module, `${name} is deprecated: use ${info.deprecated}`);
    if (!info.fires) this.warn(module, `${name} is registered, but this version of the server never calls it`);
    return info;
  }

  #addHandler(
    module: string,
    policy: ModulePolicy,
    callback: CallbackName,
    info: CallbackInfo,
    owner: object,
    value: unknown,
  ): void {
    if (typeof value !== 'function') throw new ModuleLoadError(module, `${callback} is not a function`);
    if (policy.shadow && info.kind !== 'notify') {
      // Who judges can do so beside; who is asked for something would have to be listened to.
      if (info.kind !== 'gate' && info.kind !== 'transform') return this.notInShadow(module, callback);
      const call = (value as Handler['call']).bind(owner);
      const handler = this.#handler(module, policy, callback, call);
      this.#shadows.set(callback, [...(this.#shadows.get(callback) ?? []), handler]);
      return;
    }
    const others = this.#handlers.get(callback) ?? [];
    if (others.some((other) => other.module === module)) {
      throw new ModuleLoadError(module, `${callback} was registered twice`);
    }
    const first = others[0];
    if (first && info.exclusive === 'refuse') {
      throw new ModuleLoadError(
        module,
        `${callback} is registered by ${first.module} already; only one module may have it`,
      );
    }
    const inCharge = info.exclusive === 'first' ? this.#firstOf(info.category) : undefined;
    if (inCharge !== undefined && inCharge !== module) {
      this.warn(module, `${inCharge} registers ${info.category} already; ${callback} of this one is never called`);
      return;
    }
    const call = (value as Handler['call']).bind(owner);
    this.#handlers.set(callback, [...others, this.#handler(module, policy, callback, call)]);
  }

  #addAuthCheckers(module: string, policy: ModulePolicy, value: unknown): void {
    if (!Array.isArray(value)) throw new ModuleLoadError(module, 'authCheckers is not a list');
    if (policy.shadow) return this.notInShadow(module, 'authCheckers');
    const known = this.#handlers.get('authCheckers') ?? [];
    for (const checker of value as Partial<AuthChecker>[]) {
      const { loginType, fields } = checker;
      const good =
        typeof loginType === 'string' &&
        Array.isArray(fields) &&
        fields.every((field) => typeof field === 'string') &&
        typeof checker.check === 'function';
      if (!good) throw new ModuleLoadError(module, 'authCheckers takes { loginType, fields, check }');
      const others = this.#loginTypes.get(loginType);
      if (others && !sameMembers(others.fields, fields)) {
        const first = others.handlers[0]?.module ?? module;
        throw new ModuleLoadError(
          module,
          `${loginType} needs the fields ${fields.join(', ')} here, but ${others.fields.join(', ')} in ${first}: they must agree`,
        );
      }
      const call = (checker as AuthChecker).check.bind(checker) as Handler['call'];
      const handler = this.#handler(module, policy, 'authCheckers', call);
      if (others) others.handlers.push(handler);
      else this.#loginTypes.set(loginType, { fields: Object.freeze([...fields]), handlers: [handler] });
      known.push(handler);
    }
    if (known.length > 0) this.#handlers.set('authCheckers', known);
  }

  #ownerOf(module: string): Owner {
    return this.#modules.get(module) ?? { name: module };
  }

  #handler(module: string, policy: ModulePolicy, callback: CallbackName, call: Handler['call']): Handler {
    const owner = this.#ownerOf(module);
    return Object.freeze({
      module,
      callback,
      onError: policy.onError,
      timeLimitMs: patient[callback] ?? policy.timeLimitMs ?? slow[callback] ?? timeLimitMs,
      // What calls into a thread is the server's own code.
      call: policy.isolate === 'thread' ? call : (...args: readonly unknown[]) => runAs(owner, call, ...args),
      owner,
      isBeside: policy.isolate === 'thread',
      isShadow: policy.shadow === true,
      health: {
        hung: new Map(),
        unanswered: new Set<string>(),
        probing: new Set<string>(),
        probeAgainAtMs: -Infinity,
        logged: new Map(),
        figures: undefined,
      },
    });
  }

  #needTogether(one: CallbackName, other: CallbackName): void {
    for (const [a, b] of [
      [one, other],
      [other, one],
    ] as const) {
      for (const handler of this.#handlers.get(a) ?? []) {
        if (!this.#handlers.get(b)?.some(({ module }) => module === handler.module)) {
          throw new ModuleLoadError(handler.module, `${a} needs ${b} beside it`);
        }
      }
    }
  }
}

const namesOf = (category: CallbackCategory): string[] =>
  Object.keys(table).filter((name) => table[name as CallbackName].category === category);

const sameMembers = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((member) => b.includes(member));

/** Own keys of a plain object; of an instance, whose class may have fields and helpers of its own, the callbacks only. */
function callbackNames(callbacks: object): string[] {
  const names = new Set(Object.keys(callbacks));
  let prototype = Object.getPrototypeOf(callbacks) as object | null;
  if (prototype === Object.prototype || prototype === null) return [...names];
  for (; prototype && prototype !== Object.prototype; prototype = Object.getPrototypeOf(prototype) as object | null) {
    for (const name of Object.getOwnPropertyNames(prototype)) names.add(name);
  }
  return [...names].filter((name) => Object.hasOwn(table, name) || removed.has(camelCase(name)) || snakeCase.has(name));
}
