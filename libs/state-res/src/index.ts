/** Auth rules and state resolution. */
export {};
