/** Loading, registration and dispatch of modules. */
export type { CallOutcome, HostServices } from './services.js';
export type {
  DocumentBackend,
  DocumentRows,
  JobBackend,
  ModuleCapabilities,
  SharedCapabilities,
  TableBackend,
} from './capabilities.js';
export { callbackContext, type ContextDetails } from './context.js';
export { type ArgsOf, ModuleDispatcher, type Provided } from './dispatcher.js';
export { moduleEntriesOf, settingsOptionOf } from './entries.js';
export { ModuleLoadError } from './errors.js';
export { ModuleHost, type ModuleHostOptions, type ReloadResult } from './host.js';
export { frozenCopy, type StateReader, toModuleDraft, toModuleEvent, toStateView } from './isolation.js';
export { importModules, type LoadedModule, type ModuleEntry, modulesFolder, resolveModule } from './loader.js';
export { packageOfModule } from './names.js';
export { MemoryDocuments, needsServer, offlineCapabilities, type OfflineServer } from './offline.js';
export { guardProcess, ownerOf } from './process-guard.js';
export type { TransformValues } from './readings.js';
export {
  type LoginType,
  type ModulePolicy,
  ModuleRegistry,
  type ProviderFactory,
  type Providers,
  type SealedRegistry,
} from './registry.js';
export {
  type Allowed,
  ALLOWED,
  assertAllowed,
  type GateVerdict,
  refusalError,
  type Refused,
  type TransformVerdict,
} from './verdict.js';
export { webPathFilter } from './web-resources.js';
