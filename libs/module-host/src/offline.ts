import type {
  AccountDataManager,
  FederationClientApi,
  HttpClient,
  ModuleMigration,
  PublicRoomListManager,
} from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import { Semaphore } from '@rookery/platform';
import {
  type DocumentBackend,
  type DocumentRows,
  type ModuleCapabilities,
  type SharedCapabilities,
  sharedNames,
} from './capabilities.js';

/** What is known without a running server. */
export interface OfflineServer {
  readonly serverName: string;
  readonly publicBaseurl?: string | undefined;
  /** Default: without prefixes of the settings. */
  readonly urlOf?: SharedCapabilities['urlOf'];
  /** Where templates can be read; without it that needs a running server, too. */
  readonly readTemplates?: SharedCapabilities['readTemplates'];
  /** Says what is wrong with a module's migrations, by throwing. */
  readonly checkMigrations?: (module: string, migrations: readonly ModuleMigration[]) => void;
}

const wanting = 'needs a running server';

/** Whether something failed only because no server is there: what a module does with one cannot be told. */
export const needsServer = (error: unknown): error is MatrixError =>
  MatrixError.is(error) && error.message.endsWith(wanting);

/**
 * Capabilities without a server behind them: for checking that modules load, and for tests. Documents live in memory, jobs
 * are taken and never run, tables are not made; whatever needs accounts, rooms or other servers rejects with 503.
 */
export function offlineCapabilities({
  serverName,
  publicBaseurl,
  urlOf = (path, query = {}) => {
    const search = new URLSearchParams(query).toString();
    return `${publicBaseurl ?? `https://${serverName}/`}${path.replace(/^\//, '')}${search && `?${search}`}`;
  },
  readTemplates,
  checkMigrations,
}: OfflineServer): ModuleCapabilities {
  const refuse = (name: string) => (): Promise<never> => Promise.reject(MatrixError.unavailable(`${name} ${wanting}`));
  const each = <T>(object: string, names: readonly (keyof T & string)[]): T =>
    Object.fromEntries(names.map((name) => [name, refuse(`${object}.${name}`)])) as T;
  async function* refuseToList(name: string): AsyncGenerator<never> {
    return refuse(name)();
  }
  const shared: Partial<SharedCapabilities> = {
    serverName,
    publicBaseurl,
    urlOf,
    emailAppName: 'Matrix',
    workerName: undefined,
    workerApp: undefined,
    shouldRunBackgroundTasks: () => false,
    isMine: (id) => id.slice(id.indexOf(':') + 1) === serverName,
    getQualifiedUserId: (username) => (username.startsWith('@') ? username : `@${username}:${serverName}`),
    checkPushRuleActions: () => {},
    listUsers: () => refuseToList('listUsers'),
    listRooms: () => refuseToList('listRooms'),
    ...(readTemplates ? { readTemplates } : {}),
    httpClient: each<HttpClient>('httpClient', [
      'getJson',
      'postJsonGetJson',
      'putJson',
      'postUrlencodedGetJson',
      'getFile',
      'request',
    ]),
    accountDataManager: each<AccountDataManager>('accountDataManager', ['getGlobal', 'putGlobal']),
    publicRoomListManager: each<PublicRoomListManager>('publicRoomListManager', [
      'roomIsInPublicRoomList',
      'addRoomToPublicRoomList',
      'removeRoomFromPublicRoomList',
    ]),
  };
  const rest = sharedNames.filter((name) => !Object.hasOwn(shared, name));
  return {
    shared: { ...Object.fromEntries(rest.map((name) => [name, refuse(name)])), ...shared } as SharedCapabilities,
    federation: each<FederationClientApi>('federation', ['getJson', 'putJson']),
    documents: new MemoryDocuments(),
    jobs: {
      every: () => ({ cancel: () => {} }),
      handle: () => ({ cancel: () => {} }),
      runAt: async () => {},
      cancel: async () => false,
    },
    tables: {
      run: refuse('runDbInteraction'),
      migrate: async (module, migrations) => checkMigrations?.(module, migrations),
    },
    copies: { ask: () => Promise.resolve([]) },
  };
}

/** Documents in memory. Transactions run one after the other; one that fails leaves no trace. */
export class MemoryDocuments implements DocumentBackend {
  #rows = new Map<string, string>();
  readonly #turns = new Semaphore(1);

  get(module: string, key: string): Promise<string | undefined> {
    return rowsOf(this.#rows).get(module, key);
  }
  put(module: string, key: string, json: string): Promise<void> {
    return rowsOf(this.#rows).put(module, key, json);
  }
  delete(module: string, key: string): Promise<boolean> {
    return rowsOf(this.#rows).delete(module, key);
  }
  list(...args: Parameters<DocumentRows['list']>): ReturnType<DocumentRows['list']> {
    return rowsOf(this.#rows).list(...args);
  }
  transaction<T>(_module: string, work: (rows: DocumentRows) => Promise<T>): Promise<T> {
    return this.#turns.run(async () => {
      const draft = new Map(this.#rows);
      const answer = await work(rowsOf(draft));
      this.#rows = draft;
      return answer;
    });
  }
}

function rowsOf(rows: Map<string, string>): DocumentRows {
  const idOf = (module: string, key: string): string => `${module}\n${key}`;
  return {
    get: async (module, key) => rows.get(idOf(module, key)),
    async put(module, key, json) {
      rows.set(idOf(module, key), json);
    },
    delete: async (module, key) => rows.delete(idOf(module, key)),
    async list(module, prefix, after, limit) {
      const start = idOf(module, '');
      return [...rows]
        .filter(([id]) => id.startsWith(start + prefix))
        .map(([id, json]) => ({ key: id.slice(start.length), json }))
        .filter(({ key }) => after === undefined || Buffer.compare(Buffer.from(key), Buffer.from(after)) > 0)
        .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
        .slice(0, limit);
    },
  };
}
