/** Sending, membership, state, history, aliases, directory. */
export {};
