import type {
  FederationClientApi,
  ModuleApi,
  ModuleMigration,
  ModuleTransaction,
  RegistrationApi,
  ScheduledCall,
} from '@rookery/module-api';
import type { CallOrigin, WriterBackend } from './at-writer.js';

/** What of the module API the host itself provides, for each module its own. */
export type ScopedName =
  | 'moduleName'
  | 'store'
  | 'scheduler'
  | 'messages'
  | 'metrics'
  | 'log'
  | 'federation'
  | 'runDbInteraction'
  | 'migrate'
  | 'registerCachedFunction'
  | 'invalidateCache'
  | 'loopingBackgroundCall'
  | 'delayedBackgroundCall'
  | 'runAsBackgroundProcess'
  | 'onStop'
  | 'sleep'
  | 'getCurrentTimeMsec'
  | 'completeSsoLogin';

/** What is the same for all modules. Results that are handed to modules are plain data; events come from `toModuleEvent`. */
export type SharedCapabilities = Omit<ModuleApi, keyof RegistrationApi | ScopedName>;

/** Every name once; the compiler sees to it that none is missing. */
const shared: Readonly<Record<keyof SharedCapabilities, true>> = {
  serverName: true,
  publicBaseurl: true,
  urlOf: true,
  emailAppName: true,
  workerName: true,
  workerApp: true,
  httpClient: true,
  shouldRunBackgroundTasks: true,
  getUserinfoById: true,
  getUserByReq: true,
  isUserAdmin: true,
  setUserAdmin: true,
  getQualifiedUserId: true,
  isMine: true,
  getProfileForUser: true,
  setDisplayname: true,
  getThreepidsForUser: true,
  checkUserExists: true,
  getUserByExternalId: true,
  getUserByThreepid: true,
  listUsers: true,
  checkUsername: true,
  registerUser: true,
  registerDevice: true,
  invalidateAccessToken: true,
  recordUserExternalId: true,
  forgetUserExternalId: true,
  createLoginToken: true,
  completeSsoLoginAsync: true,
  storeRemote3pidAssociation: true,
  getUserIpAndAgents: true,
  getMonthlyActiveUsersByService: true,
  deactivateUser: true,
  accountDataManager: true,
  getRoomState: true,
  getStateEventsInRoom: true,
  createAndSendEventIntoRoom: true,
  updateRoomMembership: true,
  createRoom: true,
  deleteRoom: true,
  setRoomBlocked: true,
  setRoomMediaQuarantined: true,
  usersShareRoom: true,
  listRooms: true,
  getCanonicalRoomAlias: true,
  lookupRoomAlias: true,
  publicRoomListManager: true,
  sendLocalOnlinePresenceTo: true,
  setPresenceForUsers: true,
  sendHttpPushNotification: true,
  sendMail: true,
  readTemplates: true,
  checkPushRuleActions: true,
  setPushRuleAction: true,
};

/** Names of {@link SharedCapabilities}. */
export const sharedNames = Object.keys(shared) as readonly (keyof SharedCapabilities)[];

/** Documents of all modules, by module and key. Keys and JSON texts are checked already. */
export interface DocumentRows {
  get(module: string, key: string): Promise<string | undefined>;
  put(module: string, key: string, json: string): Promise<void>;
  delete(module: string, key: string): Promise<boolean>;
  /** In the byte order of keys (`COLLATE "C"`); keys behind `after`, at most `limit`. */
  list(
    module: string,
    prefix: string,
    after: string | undefined,
    limit: number,
  ): Promise<readonly { readonly key: string; readonly json: string }[]>;
}

/** The table behind `api.store`. */
export interface DocumentBackend extends DocumentRows {
  /** One database transaction of a module; `work` may run again after a deadlock. */
  transaction<T>(module: string, work: (rows: DocumentRows) => Promise<T>): Promise<T>;
}

/**
 * Jobs that run once on the whole server. A later `every` or `handle` of the same module and name takes the earlier one's
 * place, whose `cancel` then does nothing: so a module that is loaded anew goes on where the old one was.
 */
export interface JobBackend {
  /** `job` never rejects. */
  every(module: string, name: string, periodMs: number, job: () => Promise<void>): ScheduledCall;
  /** `job` rejects when it is to be tried again. */
  handle(module: string, name: string, job: (payloadJson: string) => Promise<void>): ScheduledCall;
  /** Replaces a waiting call of the same module, name and key. */
  runAt(module: string, name: string, atMs: number, payloadJson: string, key: string | undefined): Promise<void>;
  cancel(module: string, name: string, key: string): Promise<boolean>;
}

/** Tables that modules made for themselves. */
export interface TableBackend {
  run<T>(module: string, description: string, work: (tx: ModuleTransaction) => Promise<T>): Promise<T>;
  /** Runs the steps that are not recorded yet, each in a transaction of its own, one process at a time. */
  migrate(module: string, migrations: readonly ModuleMigration[]): Promise<void>;
}

/** The copies of a module in the other processes of the server. */
export interface CopiesBackend {
  /** Answers of those that gave one. Never rejects. */
  ask(module: string, question: string, payload: unknown, origin: CallOrigin): Promise<readonly unknown[]>;
}

/** What the app gives the host, which makes each module's API of it. */
export interface ModuleCapabilities {
  readonly shared: SharedCapabilities;
  /** To any server; the host asks only for those that the module's entry allows. */
  readonly federation: FederationClientApi;
  readonly documents: DocumentBackend;
  readonly jobs: JobBackend;
  readonly tables: TableBackend;
  readonly copies: CopiesBackend;
  /** Absent in the process that writes. */
  readonly writer?: WriterBackend | undefined;
}
