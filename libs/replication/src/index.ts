/** Streams, the bus that announces them, remote calls. */
export {};
