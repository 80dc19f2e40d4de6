/** /sync and its filters. */
export {};
