/** Loading, registration and dispatch of modules. */
export type { CallOutcome, HostServices } from './caller.js';
export { callbackContext, type ContextDetails } from './context.js';
export { type ArgsOf, ModuleDispatcher, type Provided, type TransformValues } from './dispatcher.js';
export { ModuleLoadError } from './errors.js';
export { frozenCopy, type StateReader, toModuleEvent, toStateView } from './isolation.js';
export { type LoginType, type ModulePolicy, ModuleRegistry, type SealedRegistry } from './registry.js';
export {
  type Allowed,
  ALLOWED,
  assertAllowed,
  type GateVerdict,
  refusalError,
  type Refused,
  type TransformVerdict,
} from './verdict.js';
