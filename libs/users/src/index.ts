/** Accounts, login, interactive auth, sessions, profiles. */
export {};
