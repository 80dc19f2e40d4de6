/** Auth rules and state resolution. */
export { type AuthEventsOptions, checkAuthEvents } from './auth/auth-events.js';
export { authTypesFor, type AuthTypesInput, isCitable } from './auth/auth-types.js';
export { checkAuth } from './auth/check-auth.js';
export { membershipOf } from './auth/membership-rules.js';
export {
  creatorsOf,
  parsePowerLevel,
  PowerLevels,
  powerLevelsOf,
  scalarDefaults,
  type ScalarLevel,
} from './auth/power-levels.js';
export { authStateOf, type AuthState, type AuthVerdict } from './auth/verdict.js';
export { byAuth, byPrev, inAuthOrder, leadingTo, restsUpon } from './event-order.js';
export {
  type Conflict,
  conflictAmong,
  findConflict,
  type NarrowConflict,
  type StateView,
} from './resolution/conflict.js';
export {
  type AuthLinks,
  type ResolveOptions,
  StateResolutionLimitError,
  type StateResProvider,
} from './resolution/provider.js';
export { resolveConflict, resolveState } from './resolution/resolve-state.js';
export { stateKeyOf, splitStateKey, type StateMap } from './state-map.js';
