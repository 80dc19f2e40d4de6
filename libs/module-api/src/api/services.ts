/** Options of a request of {@link HttpClient}. */
export interface HttpRequestOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Added to the URL's query. */
  readonly query?: Readonly<Record<string, string>>;
  /** For the whole exchange; default 10,000. */
  readonly timeoutMs?: number;
  /** Answers larger than this are cut off with an error; default 10 MiB. */
  readonly maxSizeBytes?: number;
  readonly signal?: AbortSignal;
}

/** The answer to a request of {@link HttpClient.request}. */
export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/**
 * HTTP requests to elsewhere. They go through the server's proxy settings, and never to the addresses that the settings
 * forbid. Failures throw `MatrixError` 502; a status other than 2xx does so too, except in `request`.
 */
export interface HttpClient {
  getJson(url: string, options?: HttpRequestOptions): Promise<unknown>;
  postJsonGetJson(url: string, body: unknown, options?: HttpRequestOptions): Promise<unknown>;
  putJson(url: string, body: unknown, options?: HttpRequestOptions): Promise<unknown>;
  /** Sends an `application/x-www-form-urlencoded` body. */
  postUrlencodedGetJson(
    url: string,
    fields: Readonly<Record<string, string>>,
    options?: HttpRequestOptions,
  ): Promise<unknown>;
  getFile(url: string, options?: HttpRequestOptions): Promise<HttpAnswer>;
  request(method: string, url: string, body?: string | Uint8Array, options?: HttpRequestOptions): Promise<HttpAnswer>;
}

/**
 * Signed requests to other servers. Only to those that the module's entry allows in `allow_federation_to`. A request that
 * fails throws a MatrixError: the other server's own status and code where it refused, 502 or 504 where it could not be
 * reached, 403 for a server that is not allowed.
 */
export interface FederationClientApi {
  /** @param path percent-encoded, begins with `/_matrix/federation/` */
  getJson(destination: string, path: string, query?: Readonly<Record<string, string>>): Promise<unknown>;
  /** @param body a JSON object */
  putJson(destination: string, path: string, body: unknown): Promise<unknown>;
}

/** A document of {@link ModuleStore}. */
export interface StoredDocument {
  readonly key: string;
  /** Frozen. */
  readonly value: unknown;
}

/** Reading and writing documents; inside a transaction or, each call by itself, outside. */
export interface DocumentStore {
  /** The document, frozen, or `undefined`. */
  get(key: string): Promise<unknown>;
  /** Stores a JSON value of at most 256 KiB under a key of at most 255 bytes. */
  put(key: string, value: unknown): Promise<void>;
  /** Whether there was one. */
  delete(key: string): Promise<boolean>;
  /** Documents whose keys begin with `prefix`, in the keys' byte order; at most `limit` (default and largest: 1,000). */
  list(options?: {
    readonly prefix?: string;
    /** Only keys behind this one: the last key of the page before. */
    readonly after?: string;
    readonly limit?: number;
  }): Promise<readonly StoredDocument[]>;
}

/**
 * The module's own documents, in the server's database: no other module sees them, all processes of a server share them.
 */
export interface ModuleStore extends DocumentStore {
  /**
   * Runs `work` in a transaction: everything in it happens together or not at all. It may run more than once, so it must
   * have no other effect; never wait for anything but `tx` in it.
   */
  transaction<T>(work: (tx: DocumentStore) => Promise<T>): Promise<T>;
}

/**
 * Statements on the module's own tables: `SELECT`, `WITH`, `VALUES`, `INSERT`, `UPDATE` and `DELETE`, one at a time. `?` stands for
 * parameters on both databases. A statement that touches any other table, the server's or another module's, throws a
 * `RangeError` before it runs, and the transaction comes to nothing. Of a module's transactions one writes at a time, in whichever
 * process: from its first statement that writes on, it sees what those before it left. What it reads before that may have changed
 * by then on PostgreSQL, unless it reads it `FOR UPDATE`. So it is in every process of a server.
 */
export interface ModuleTransaction {
  readonly dialect: 'postgres' | 'sqlite';
  query<Row>(sql: string, params?: readonly (string | number | boolean | null | Uint8Array)[]): Promise<Row[]>;
  /** How many rows were changed. */
  run(sql: string, params?: readonly (string | number | boolean | null | Uint8Array)[]): Promise<number>;
}

/**
 * One step of the schema of a module's own tables. Names of tables and indexes begin with `module_`, the module's name with `_` for
 * everything but letters and digits, and `_`: those of `word-filter` with `module_word_filter_`.
 */
export interface ModuleMigration {
  /** Unique within the module; recorded, so that it runs once. Steps run in the order of the list. */
  readonly name: string;
  /** Statements that both databases take, or different ones. */
  readonly sql: readonly string[] | { readonly postgres: readonly string[]; readonly sqlite: readonly string[] };
}

/** Something that will happen and can be called off. */
export interface ScheduledCall {
  cancel(): void;
}

/**
 * Jobs that run in one process of the server, whichever that is, and survive a restart. Names are the module's own.
 */
export interface Scheduler {
  /** Runs `job` every `periodMs` (at least 1,000), the first time after one period. A job never overlaps itself. */
  every(name: string, periodMs: number, job: () => Promise<void> | void): ScheduledCall;
  /** Says what to do with the payloads of {@link runAt}. Only while `register` runs. */
  handle(name: string, job: (payload: unknown) => Promise<void> | void): void;
  /**
   * Stores a call of the handler of that name at a moment, or as soon as possible where that is past; a failing one is tried again, up to ten times, ever later.
   * @param payload a JSON value
   * @param key replaces a waiting call of the same name and key
   */
  runAt(name: string, atMs: number, payload: unknown, key?: string): Promise<void>;
  /** Calls off what {@link runAt} stored. Whether there was something. */
  cancel(name: string, key: string): Promise<boolean>;
}

/**
 * Questions between modules. What goes from one to another is JSON, copied, at most 4 MiB; who asks is known for certain. Both run in the same
 * process, or each in its thread. A module that is taken out of service or loaded anew is asked as it is then.
 */
export interface ModuleMessages {
  /**
   * Says what this module answers. Only while `register` runs.
   * @param answer gets what was asked, frozen, and the name of the module that asks. What it throws as `MatrixError` reaches that
   *   module as such
   */
  answer(question: string, answer: (payload: unknown, from: string) => unknown): void;
  /**
   * Asks another module. From `register`, modules that stand before this one in the settings can be asked.
   * @throws MatrixError 404 `M_NOT_FOUND` when there is no such module, or it does not answer that; 504 when it takes longer than its
   *   time limit (5 seconds); 500 when it fails, or when ten questions wait for each other
   */
  ask(module: string, question: string, payload?: unknown): Promise<unknown>;
  /**
   * Asks the copies of this module in the other processes of the server, which answer as {@link answer} says; `from` is the module's
   * own name. So they can be told what only lives in memory: that something is to be forgotten, for example.
   * @returns what those said who answered within three seconds, in no order; empty where the server is a single process. A process that
   *   hangs or is cut off is left out, and so is one that begins later: what must not be lost belongs in `store`
   */
  askCopies(question: string, payload?: unknown): Promise<readonly unknown[]>;
}

/** Numbers for the server's Prometheus page. Names get the prefix `rookery_module_` and the module's name. */
export interface ModuleMetrics {
  counter(
    name: string,
    help: string,
    labelNames?: readonly string[],
  ): {
    inc(labels?: Readonly<Record<string, string>>, by?: number): void;
  };
  gauge(
    name: string,
    help: string,
    labelNames?: readonly string[],
  ): {
    set(value: number, labels?: Readonly<Record<string, string>>): void;
  };
  histogram(
    name: string,
    help: string,
    labelNames?: readonly string[],
    buckets?: readonly number[],
  ): {
    observe(value: number, labels?: Readonly<Record<string, string>>): void;
  };
}

/** Writes to the server's log, under the module's name. */
export interface ModuleLog {
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void;
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

/** A page or mail made from a template. */
export interface ModuleTemplate {
  render(variables: Readonly<Record<string, unknown>>): string;
}
