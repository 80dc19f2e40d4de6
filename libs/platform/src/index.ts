/** Configuration, logging, metrics, clock, lifecycle. */
export { Clock, SystemClock, type Timer } from './clock.js';
export { Ids, SystemIds } from './ids.js';
export type { Requester } from './requester.js';
