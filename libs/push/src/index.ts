/** Push actions, counts, pushers. */
export {};
