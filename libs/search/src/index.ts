/** Derived indexes: user directory, message search, statistics. */
export {};
