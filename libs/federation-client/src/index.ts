/** Requests to other servers. */
export {};
