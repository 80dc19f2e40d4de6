import { AsyncLocalStorage } from 'node:async_hooks';

/** Whose code runs. */
export interface Owner {
  /** What the module calls itself; what the settings call it while nobody knows. */
  name: string;
}

const owners = new AsyncLocalStorage<Owner | undefined>();

/**
 * The module that code runs for, wherever that code lies: the packages it uses, and every timer, socket and promise that came of
 * a call of it. `undefined` for the server's own.
 */
export const currentOwner = (): Owner | undefined => owners.getStore();

/** Runs code of a module; whatever it begins is the module's, also what comes of it later. */
export const runAs = <Args extends readonly unknown[], T>(owner: Owner, fn: (...args: Args) => T, ...args: Args): T =>
  owners.run(owner, fn, ...args);

/** Runs code of the server that a module called: what it begins there is not the module's. */
export const runAsServer = <Args extends readonly unknown[], T>(fn: (...args: Args) => T, ...args: Args): T =>
  owners.run(undefined, fn, ...args);

/** An object of a module whose methods run as the module's, whoever calls them. Anything else comes back as it is. */
export function ownedBy<T>(owner: Owner, value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  // Of an object that is frozen itself a proxy could show no methods but its own.
  return new Proxy(Object.create(value) as T & object, {
    get(_, key) {
      const member: unknown = Reflect.get(value, key, value);
      if (typeof member !== 'function') return member;
      return (...args: unknown[]): unknown => owners.run(owner, () => Reflect.apply(member, value, args) as unknown);
    },
    ownKeys: () => Reflect.ownKeys(value),
    getOwnPropertyDescriptor(_, key) {
      const own = Reflect.getOwnPropertyDescriptor(value, key);
      return own && { ...own, configurable: true };
    },
  });
}
