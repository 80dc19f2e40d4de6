/** Loading, registration and dispatch of modules. */
export type {
  CopiesBackend,
  DocumentBackend,
  DocumentRows,
  JobBackend,
  ModuleCapabilities,
  TableBackend,
} from './capabilities.js';
export type { CallOrigin, WriterBackend } from './at-writer.js';
export { callbackContext, requesterForModules } from './context.js';
export { ModuleDispatcher } from './dispatcher.js';
export type { ActingModule } from './event-chains.js';
export { moduleEntriesOf, settingsOptionOf } from './entries.js';
export { ModuleLoadError } from './errors.js';
export { ModuleHost } from './host.js';
export { frozenCopy, type StateReader, toModuleDraft, toModuleEvent, toStateView } from './isolation.js';
export { formerModulesFolder, modulesFolder, ownApiVersion } from './definition.js';
export { type LoadedModule, type ModuleEntry, placeOfModule, readDefinition } from './loader.js';
export { describeManifest, manifestOf, type ModuleManifest, readManifest } from './manifest.js';
export { packageOfModule } from './names.js';
export { needsServer, offlineCapabilities } from './offline.js';
export type { CallbackReport, ModuleReport } from './report.js';
export type { TracedCall } from './trace.js';
export { guardProcess } from './process-guard.js';
export { providerParts } from './provider-parts.js';
export { type ModuleIdentityProvider, ModuleRegistry, type ProviderFactory } from './registry.js';
export { assertAllowed, type GateVerdict, refusalError } from './verdict.js';
export { fitOf, misfitOf } from './versions.js';
export { webPathFilter } from './web-resources.js';
