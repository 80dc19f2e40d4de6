/** Inbound endpoints and transactions, outbound queues. */
export {};
