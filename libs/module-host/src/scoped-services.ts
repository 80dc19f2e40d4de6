import type {
  DocumentStore,
  FederationClientApi,
  ModuleLog,
  ModuleStore,
  ScheduledCall,
  Scheduler,
} from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import type { DocumentBackend, DocumentRows, JobBackend } from './capabilities.js';
import { frozenCopy } from './isolation.js';
import { runAs } from './owner.js';
import type { ModuleScope } from './scope.js';

const maxKeyBytes = 255;
const maxDocumentBytes = 262_144;
const maxPayloadBytes = 65_536;
const maxListed = 1000;
const minPeriodMs = 1000;
/** The last moment that there is a date for, milliseconds since the epoch. */
const latestMs = 8.64e15;

function checkKey(key: unknown, what = 'key'): string {
  // Half a character would become the same replacement as any other half.
  const isText = typeof key === 'string' && key !== '' && key.isWellFormed() && !key.includes('\0');
  if (!isText || Buffer.byteLength(key) > maxKeyBytes) {
    throw new RangeError(`A ${what} is a text of 1 to ${maxKeyBytes} bytes`);
  }
  return key;
}

function toJson(value: unknown, maxBytes: number): string {
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError('Only JSON values can be stored');
  if (Buffer.byteLength(json) > maxBytes) throw new RangeError(`The value has more than ${maxBytes} bytes of JSON`);
  return json;
}

function documentsOf(module: string, rows: DocumentRows): DocumentStore {
  return {
    async get(key) {
      const json = await rows.get(module, checkKey(key));
      return json === undefined ? undefined : frozenCopy(JSON.parse(json) as unknown);
    },
    put: async (key, value) => rows.put(module, checkKey(key), toJson(value, maxDocumentBytes)),
    delete: async (key) => rows.delete(module, checkKey(key)),
    async list({ prefix = '', after, limit = maxListed } = {}) {
      if (prefix !== '') checkKey(prefix, 'prefix');
      if (after !== undefined && after !== '') checkKey(after);
      if (!Number.isInteger(limit) || limit < 1) throw new RangeError('A limit is a whole number of at least 1');
      const found = await rows.list(module, prefix, after, Math.min(limit, maxListed));
      return found.map(({ key, json }) => Object.freeze({ key, value: frozenCopy(JSON.parse(json) as unknown) }));
    },
  };
}

/** `api.store` of one module. */
export function storeOf(module: string, backend: DocumentBackend): ModuleStore {
  return Object.freeze({
    ...documentsOf(module, backend),
    transaction: async <T>(work: (tx: DocumentStore) => Promise<T>): Promise<T> =>
      backend.transaction(module, (rows) => work(documentsOf(module, rows))),
  });
}

/** `api.scheduler` of one module. What it started ends with the module. */
export function schedulerOf(
  scope: ModuleScope,
  jobs: JobBackend,
  assertRegistering: (method: string) => void,
): Scheduler {
  const { module } = scope;
  const names = new Set<string>();
  const claim = (name: string): void => {
    checkKey(name, 'job name');
    if (names.has(name)) throw new RangeError(`There is a job called ${name} already`);
    names.add(name);
  };
  /**
   * Begins with jobs once the module is in force: until then they are those of the module that it may take the place of.
   * The result ends them, and says whether that had not happened before.
   */
  const begin = (start: () => ScheduledCall): (() => boolean) => {
    const off: (() => unknown)[] = [];
    let call: ScheduledCall | undefined;
    let ended = false;
    const end = (): boolean => {
      const isFirst = !ended;
      ended = true;
      for (const fn of off) fn();
      call?.cancel();
      return isFirst;
    };
    off.push(scope.add(() => void end()));
    if (!ended) off.push(scope.onceInForce(() => (call = start())));
    return end;
  };
  return Object.freeze({
    every(name, periodMs, job) {
      if (!(typeof periodMs === 'number' && periodMs >= minPeriodMs && periodMs <= latestMs / 2)) {
        throw new RangeError(`A period is at least ${minPeriodMs} milliseconds`);
      }
      claim(name);
      const cancel = begin(() => jobs.every(module, name, periodMs, () => scope.run(name, job)));
      return {
        cancel: () => {
          if (cancel()) names.delete(name);
        },
      };
    },
    handle(name, job) {
      assertRegistering('scheduler.handle');
      claim(name);
      begin(() =>
        jobs.handle(module, name, async (json) => runAs(scope.owner, job, frozenCopy(JSON.parse(json) as unknown))),
      );
    },
    async runAt(name, atMs, payload, key) {
      if (typeof atMs !== 'number' || !(Math.abs(atMs) <= latestMs))
        throw new RangeError('A moment is a number of milliseconds since the epoch');
      const json = toJson(payload ?? null, maxPayloadBytes);
      await jobs.runAt(module, checkKey(name, 'job name'), atMs, json, key === undefined ? key : checkKey(key));
    },
    cancel: async (name, key) => jobs.cancel(module, checkKey(name, 'job name'), checkKey(key)),
  } satisfies Scheduler);
}

/** `api.log` of one module. Its words are a field, since they are not ours. */
export function logOf({ module, log }: ModuleScope): ModuleLog {
  const write =
    (level: keyof ModuleLog) =>
    (message: string, fields?: Readonly<Record<string, unknown>>): void =>
      log[level](String(message).slice(0, 1000), { ...fields, module });
  return Object.freeze({ debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') });
}

/** `api.federation` of one module: only to servers that its entry allows. */
export function federationOf(
  module: string,
  allowed: readonly string[],
  backend: FederationClientApi,
): FederationClientApi {
  const check = (destination: string, path: string): void => {
    if (!allowed.includes('*') && !allowed.includes(destination)) {
      throw MatrixError.forbidden(`The entry of module ${module} does not allow requests to ${destination}`);
    }
    // What would be signed is not what would be sent.
    const isOdd = /[^\x21-\x7e]|[\\#]|\/(?:\.|%2e){1,2}(?:[/?]|$)/i.test(path);
    if (!path.startsWith('/_matrix/federation/') || isOdd) {
      throw new RangeError('A path is percent-encoded and begins with /_matrix/federation/');
    }
  };
  return Object.freeze({
    async getJson(destination, path, query) {
      check(destination, path);
      return backend.getJson(destination, path, query);
    },
    async putJson(destination, path, body) {
      check(destination, path);
      return backend.putJson(destination, path, body);
    },
  } satisfies FederationClientApi);
}
