/** Typing, receipts, presence. */
export {};
