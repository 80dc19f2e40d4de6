import type {
  AccountDataManager,
  FederationClientApi,
  HttpClient,
  ModuleApi,
  ModuleLog,
  ModuleMetrics,
  ModuleStore,
  PublicRoomListManager,
  Scheduler,
} from '@rookery/module-api';

/** A class that nothing is made of: the name under which Nest hands out a part of the module API. */
type Token<Part> = abstract new () => Part;

const token = <Part>(type: abstract new () => object): Token<Part> => type as Token<Part>;

/** The whole module API, for constructors: `constructor(private readonly api: MatrixApi)`. */
export const MatrixApi = token<ModuleApi>(class MatrixApi {});
export type MatrixApi = ModuleApi;
/** `api.store`: the module's own documents. */
export const MatrixStore = token<ModuleStore>(class MatrixStore {});
export type MatrixStore = ModuleStore;
/** `api.scheduler` */
export const MatrixScheduler = token<Scheduler>(class MatrixScheduler {});
export type MatrixScheduler = Scheduler;
/** `api.log` */
export const MatrixLog = token<ModuleLog>(class MatrixLog {});
export type MatrixLog = ModuleLog;
/** `api.metrics` */
export const MatrixMetrics = token<ModuleMetrics>(class MatrixMetrics {});
export type MatrixMetrics = ModuleMetrics;
/** `api.httpClient` */
export const MatrixHttpClient = token<HttpClient>(class MatrixHttpClient {});
export type MatrixHttpClient = HttpClient;
/** `api.federation` */
export const MatrixFederation = token<FederationClientApi>(class MatrixFederation {});
export type MatrixFederation = FederationClientApi;
/** `api.accountDataManager` */
export const MatrixAccountData = token<AccountDataManager>(class MatrixAccountData {});
export type MatrixAccountData = AccountDataManager;
/** `api.publicRoomListManager` */
export const MatrixPublicRooms = token<PublicRoomListManager>(class MatrixPublicRooms {});
export type MatrixPublicRooms = PublicRoomListManager;

/** Each part of the module API under its class. */
export const partsOf = (api: ModuleApi): { provide: Token<unknown>; useValue: unknown }[] => [
  { provide: MatrixApi, useValue: api },
  { provide: MatrixStore, useValue: api.store },
  { provide: MatrixScheduler, useValue: api.scheduler },
  { provide: MatrixLog, useValue: api.log },
  { provide: MatrixMetrics, useValue: api.metrics },
  { provide: MatrixHttpClient, useValue: api.httpClient },
  { provide: MatrixFederation, useValue: api.federation },
  { provide: MatrixAccountData, useValue: api.accountDataManager },
  { provide: MatrixPublicRooms, useValue: api.publicRoomListManager },
];
