/** Derived indexes: user directory, message search, statistics. */
export { messageIndexUpdate } from './messages/message-index.js';
export { searchMigrations } from './migrations/index.js';
export { SearchHttpModule } from './search.module.js';
export { userDirectoryUpdate } from './users/user-directory-index.js';
