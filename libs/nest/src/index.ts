/** Rookery modules written as Nest modules. */
export * from './callbacks.js';
export { MatrixEvents, type NewEvent, type StreamOptions } from './events.js';
export { nestModule, type NestModuleOptions } from './nest-module.js';
export {
  MatrixAccountData,
  MatrixApi,
  MatrixFederation,
  MatrixHttpClient,
  MatrixLog,
  MatrixMetrics,
  MatrixPublicRooms,
  MatrixScheduler,
  MatrixStore,
} from './services.js';
export { ForAdmins, ForUsers, MatrixAdminGuard, MatrixErrors, MatrixUserGuard, Requester, WebContext } from './web.js';
