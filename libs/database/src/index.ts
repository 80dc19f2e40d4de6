/** Reads, writes, dialects, stream ids, migrations, background updates. */
export {};
