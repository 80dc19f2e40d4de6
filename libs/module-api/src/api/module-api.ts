import type { AccountApi } from './accounts.js';
import type { RegistrationApi } from './registration.js';
import type { RoomApi } from './rooms.js';
import type {
  FederationClientApi,
  HttpClient,
  ModuleLog,
  ModuleMessages,
  ModuleMetrics,
  ModuleMigration,
  ModuleStore,
  ModuleTemplate,
  ModuleTransaction,
  ScheduledCall,
  Scheduler,
} from './services.js';

/** Presence that a module sets. */
export interface PresenceToSet {
  readonly userId: string;
  readonly state: 'online' | 'unavailable' | 'offline' | 'busy';
  readonly statusMsg?: string;
}

/** Telling people and devices. */
export interface MessagingApi {
  /** `send_local_online_presence_to`: sends these users, local or not, the presence of all local users who are online. */
  sendLocalOnlinePresenceTo(userIds: readonly string[]): Promise<void>;
  /** `set_presence_for_users` */
  setPresenceForUsers(states: readonly PresenceToSet[]): Promise<void>;
  /**
   * `send_http_push_notification`: straight to the HTTP pushers of a user, or of one device. By pushkey, whether the gateway
   * took it.
   */
  sendHttpPushNotification(
    userId: string,
    deviceId: string | undefined,
    content: Readonly<Record<string, unknown>>,
    tweaks?: Readonly<Record<string, unknown>>,
    defaultPayload?: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, boolean>>>;
  /** `send_mail` @throws MatrixError 500 when the server sends no mail */
  sendMail(recipient: string, subject: string, html: string, text: string): Promise<void>;
  /** `read_templates`: from the module's folder, else from the server's. */
  readTemplates(filenames: readonly string[], customTemplateDirectory?: string): Promise<readonly ModuleTemplate[]>;
  /** `check_push_rule_actions` @throws MatrixError 400 when a push rule could not have these actions */
  checkPushRuleActions(actions: readonly (string | Readonly<Record<string, unknown>>)[]): void;
  /** `set_push_rule_action` @throws MatrixError 404 when there is no such rule */
  setPushRuleAction(
    userId: string,
    scope: string,
    kind: string,
    ruleId: string,
    actions: readonly (string | Readonly<Record<string, unknown>>)[],
  ): Promise<void>;
}

/** Time and work behind the requests. */
export interface BackgroundApi {
  /** `get_current_time_msec`: milliseconds since the epoch. */
  getCurrentTimeMsec(): number;
  /** `sleep`; a call that waits does not keep the server from stopping. */
  sleep(delayMs: number): Promise<void>;
  /**
   * `should_run_background_tasks`: whether this is the process that runs them. Of several processes it is one at a time; where another
   * takes its place, modules register there anew.
   */
  shouldRunBackgroundTasks(): boolean;
  /**
   * `looping_background_call`: every `periodMs` in this process, when it runs background tasks or `runOnAllInstances`. What
   * has to happen once on the whole server and survive a restart belongs in `scheduler`.
   */
  loopingBackgroundCall(
    fn: () => Promise<void> | void,
    periodMs: number,
    options?: { readonly description?: string; readonly runOnAllInstances?: boolean },
  ): ScheduledCall;
  /** `delayed_background_call`: once in this process, forgotten at a restart. */
  delayedBackgroundCall(
    delayMs: number,
    fn: () => Promise<void> | void,
    options?: { readonly description?: string },
  ): ScheduledCall;
  /** `run_as_background_process`: now, without anybody waiting; a failure is logged. */
  runAsBackgroundProcess(description: string, fn: () => Promise<void> | void): void;
  /** Calls `fn` when the module is taken out of service: the server stops, or its entry was changed or removed. Ours. */
  onStop(fn: () => Promise<void> | void): void;
  /**
   * `run_db_interaction`: statements on the module's own tables in a transaction. It may run more than once, so it must have
   * no other effect; never wait for anything but `tx` in it. The server's own tables change with every version.
   */
  runDbInteraction<T>(description: string, work: (tx: ModuleTransaction) => Promise<T>): Promise<T>;
  /** Prepares the module's own tables. Only while `register` runs; runs before the server listens. Ours. */
  migrate(migrations: readonly ModuleMigration[]): Promise<void>;
  /**
   * `register_cached_function`: remembers answers by key, each process for itself, at most `maxEntries` (default 1,000), each for
   * `ttlMs` (default: until invalidated). In the server's process `caches.per_cache_factors.module_<module>_<name>` makes more or fewer of it.
   */
  registerCachedFunction<T>(
    name: string,
    load: (key: string) => Promise<T>,
    options?: { readonly maxEntries?: number; readonly ttlMs?: number },
  ): (key: string) => Promise<T>;
  /** `invalidate_cache`: forgets an answer of {@link registerCachedFunction}, in all processes. */
  invalidateCache(name: string, key: string): Promise<void>;
}

/** What a module may call. One object per module, frozen; it stays usable until the server stops. */
export interface ModuleApi extends RegistrationApi, AccountApi, RoomApi, MessagingApi, BackgroundApi {
  /** Name of this module. */
  readonly moduleName: string;
  /** `server_name` */
  readonly serverName: string;
  /** `public_baseurl`, with a slash at its end; `undefined` where the settings do not say. */
  readonly publicBaseurl: string | undefined;
  /**
   * The full address of a path of this server, or of a module of it, for links: below `public_baseurl`, or what stands for it where the
   * settings do not say, and with the settings' own prefixes in place of `/_matrix` and `/_synapse`. Ours.
   * @param path as {@link RegistrationApi.registerWebResource} takes it: `/_synapse/client/my-module`
   */
  urlOf(path: string, query?: Readonly<Record<string, string>>): string;
  /** `email_app_name` */
  readonly emailAppName: string;
  /** `worker_name`; `undefined` in the main process. */
  readonly workerName: string | undefined;
  /** `worker_app`; `undefined` in the main process. */
  readonly workerApp: string | undefined;
  /** `http_client` */
  readonly httpClient: HttpClient;
  /** Signed requests to other servers. Ours. */
  readonly federation: FederationClientApi;
  /** The module's own documents. Ours. */
  readonly store: ModuleStore;
  /** Questions to other modules, and answers to theirs. Ours. */
  readonly messages: ModuleMessages;
  /** Jobs that run once on the whole server. Ours. */
  readonly scheduler: Scheduler;
  /** Ours. */
  readonly metrics: ModuleMetrics;
  readonly log: ModuleLog;
}
