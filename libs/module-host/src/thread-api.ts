import {
  type AuthChecker,
  callbackTable,
  type IdentityProvider,
  type ModuleApi,
  type RegistrationApi,
} from '@rookery/module-api';
import { ModuleCaches } from './caches.js';
import { forgetCached } from './messages.js';
import type { CallMode, Peer } from './thread-peer.js';
import type { Lent } from './thread-values.js';

/** The server's side of a module's API, as its thread is told of it. */
export interface ApiSurface {
  /** Values by path: `serverName`. */
  readonly constants: Readonly<Record<string, unknown>>;
  /** Paths of functions: `store.get`. */
  readonly functions: readonly string[];
}

/** Takes an API apart. @param found told of each function */
export function surfaceOf(api: ModuleApi, found: (path: string, fn: Lent) => void): ApiSurface {
  const constants: Record<string, unknown> = {};
  const functions: string[] = [];
  const look = (object: object, prefix: string): void => {
    for (const [name, value] of Object.entries(object)) {
      const path = prefix + name;
      if (typeof value === 'function') {
        functions.push(path);
        found(path, (value as Lent).bind(object));
      } else if (typeof value === 'object' && value !== null) look(value as object, `${path}.`);
      else constants[path] = value;
    }
  };
  look(api, '');
  return { constants, functions };
}

/** What gives its result at once, so that the thread rests until it is there. What is not listed gives a promise. */
const atRest = new Set([
  'getQualifiedUserId',
  'urlOf',
  'checkPushRuleActions',
  'shouldRunBackgroundTasks',
  'scheduler.every',
  'scheduler.handle',
  'messages.answer',
  'metrics.counter',
  'metrics.gauge',
  'metrics.histogram',
  'loopingBackgroundCall',
  'delayedBackgroundCall',
  'onStop',
]);
/** What gives nothing, and whose failure nobody waits for. */
const levels = ['debug', 'info', 'warn', 'error'] as const;
const posted = new Set([...levels.map((level) => `log.${level}`), 'runAsBackgroundProcess']);

/** What gives a stream at once, which is read piece by piece. */
const streamed = new Set(['listUsers', 'listRooms']);

const modeOf = (path: string): CallMode =>
  atRest.has(path) ? 'sync' : posted.has(path) ? 'post' : streamed.has(path) ? 'stream' : 'async';

/** What a module registered, by names that are the same each time it registers: so its next thread can take over. */
export type Slots = Map<string, Lent>;

/**
 * The API of a module in a thread: the same promises, kept by the server behind the wire. What a module asks often and the
 * thread can tell by itself is not asked there.
 */
export function apiInThread(
  peer: Peer,
  { constants, functions }: ApiSurface,
  slots: Slots,
  clock: { nowMs(): number; monotonicMs(): number },
): ModuleApi {
  const caches = new ModuleCaches(clock);
  const own: Readonly<Record<string, Lent>> = {
    getCurrentTimeMsec: () => clock.nowMs(),
    isMine: (id) =>
      String(id).includes(':') && String(id).slice(String(id).indexOf(':') + 1) === constants['serverName'],
    registerCachedFunction: (name, load, options) =>
      caches.register(name as string, load as () => Promise<unknown>, options as object),
    async invalidateCache(name, key) {
      caches.forget(name as string, key as string);
      await peer.call('api:invalidateCache', [name, key]);
    },
    ...Object.fromEntries(levels.map((level) => [`log.${level}`, logged(peer, `api:log.${level}`)])),
    ...registrations(peer, slots),
  };
  const api: Record<string, unknown> = {};
  const set = (path: string, value: unknown): void => {
    const [outer = '', inner] = path.split('.');
    if (inner === undefined) api[outer] = value;
    else ((api[outer] ??= {}) as Record<string, unknown>)[inner] = value;
  };
  for (const [path, value] of Object.entries(constants)) set(path, value);
  for (const path of functions) {
    const mode = modeOf(path);
    const target = `api:${path}`;
    set(
      path,
      own[path] ??
        (mode === 'sync'
          ? (...args: unknown[]) => peer.callAtRest(target, args)
          : mode === 'post'
            ? (...args: unknown[]) => peer.post(target, args)
            : mode === 'stream'
              ? (...args: unknown[]) => peer.callForStream(target, args)
              : (...args: unknown[]) => peer.call(target, args)),
    );
  }
  peer.callAtRest('api:messages.answer', [forgetCached, caches.forgetFor(String(constants['moduleName']))]);
  for (const part of Object.values(api)) if (typeof part === 'object') Object.freeze(part);
  return Object.freeze(api) as unknown as ModuleApi;
}

/** A line for the log; whatever a module has for it, it goes on. */
const logged =
  (peer: Peer, target: string): Lent =>
  (message, fields) => {
    try {
      peer.post(target, [message, fields]);
    } catch {
      peer.post(target, [String(message), { fields: 'They hold what cannot be written' }]);
    }
  };

/** What the server is told of a registration: where functions are, that they are in slots. */
export type Registration =
  | { readonly kind: 'callbacks'; readonly method: string; readonly callbacks: Readonly<Record<string, unknown>> }
  | { readonly kind: 'web'; readonly path: unknown }
  | { readonly kind: 'identityProvider'; readonly provider: unknown; readonly methods: readonly string[] }
  | {
      readonly kind: 'provider';
      readonly method: 'registerMediaStorageProvider' | 'registerOidcMappingProvider' | 'registerSamlMappingProvider';
      readonly name: unknown;
    };

/** Stands for a function in a slot. */
export interface InSlot {
  readonly slot: string;
}

const categories = [
  'registerSpamCheckerCallbacks',
  'registerThirdPartyRulesCallbacks',
  'registerPasswordAuthProviderCallbacks',
  'registerAccountValidityCallbacks',
  'registerPresenceRouterCallbacks',
  'registerAccountDataCallbacks',
  'registerAddExtraFieldsToUnsignedClientEventCallbacks',
  'registerMediaRepositoryCallbacks',
  'registerRatelimitCallbacks',
  'registerFederationCallbacks',
  'registerBackgroundUpdateControllerCallbacks',
] as const satisfies readonly (keyof RegistrationApi)[];

/** Methods of an identity provider. */
export const identityProviderMethods = ['begin', 'callback', 'profile', 'logout', 'refresh'] as const;

function registrations(peer: Peer, slots: Slots): Record<string, Lent> {
  const tell = (registration: Registration): void => void peer.callAtRest('register', [registration]);
  const keep = (slot: string, fn: Lent): InSlot => {
    slots.set(slot, fn);
    return { slot };
  };
  const made: Record<string, Lent> = {};
  let checkers = 0;
  for (const method of categories) {
    made[method] = (given) => {
      if (typeof given !== 'object' || given === null) {
        return tell({ kind: 'callbacks', method, callbacks: given as unknown as Record<string, unknown> });
      }
      const callbacks: Record<string, unknown> = {};
      // Of an instance, whose class may have helpers of its own, the callbacks only.
      const isInstance = ![Object.prototype, null].includes(Object.getPrototypeOf(given) as object | null);
      const names = isInstance
        ? namesIn(given).filter((name) => Object.hasOwn(callbackTable, name))
        : Object.keys(given);
      for (const name of names) {
        const value = (given as Record<string, unknown>)[name];
        if (typeof value === 'function') callbacks[name] = keep(`callback:${name}`, (value as Lent).bind(given));
        else if (name === 'authCheckers' && Array.isArray(value)) {
          callbacks[name] = (value as AuthChecker[]).map(({ loginType, fields, check }, i) => ({
            ...{ loginType, fields },
            check: typeof check === 'function' ? keep(`checker:${checkers++}`, (check as Lent).bind(value[i])) : check,
          }));
        } else callbacks[name] = value;
      }
      tell({ kind: 'callbacks', method, callbacks });
    };
  }
  made['registerWebResource'] = (path, handler) => {
    const slot = `web:${String(path)}`;
    // Of two for one path the first answers.
    if (typeof handler === 'function' && !slots.has(slot)) slots.set(slot, handler as Lent);
    tell({ kind: 'web', path });
  };
  made['registerIdentityProvider'] = (given) => {
    const provider = (given ?? {}) as IdentityProvider;
    const methods = identityProviderMethods.filter((method) => typeof provider[method] === 'function');
    for (const method of methods) keep(`identity:${provider.id}:${method}`, (provider[method] as Lent).bind(provider));
    const { id, name, icon, brand, registers } = provider;
    tell({ kind: 'identityProvider', provider: { id, name, icon, brand, registers }, methods });
  };
  const providers = [
    'registerMediaStorageProvider',
    'registerOidcMappingProvider',
    'registerSamlMappingProvider',
  ] as const;
  for (const method of providers) {
    made[method] = (name, create) => {
      if (typeof create === 'function') {
        keep(`${method}:${String(name)}`, (...from) => methodsOf((create as (...from: unknown[]) => object)(...from)));
      }
      tell({ kind: 'provider', method, name: typeof create === 'function' ? name : undefined });
    };
  }
  return made;
}

/** Names of all that an object has, its classes' methods included. */
function namesIn(object: object): string[] {
  const names = new Set<string>();
  let at: object | null = object;
  for (; at && at !== Object.prototype; at = Object.getPrototypeOf(at) as object | null) {
    for (const name of Object.getOwnPropertyNames(at)) if (at === object || name !== 'constructor') names.add(name);
  }
  return [...names];
}

/** The methods of an object, as ones that need it no more. */
function methodsOf(object: object): Record<string, Lent> {
  const methods: Record<string, Lent> = {};
  for (const name of namesIn(object)) {
    const value = (object as Record<string, unknown>)[name];
    if (typeof value === 'function') methods[name] = (value as Lent).bind(object);
  }
  return methods;
}
