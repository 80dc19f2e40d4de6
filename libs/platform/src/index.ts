/** Configuration, logging, metrics, clock, lifecycle. */
export {};
