/** The default push ruleset and its evaluation. */
export {};
