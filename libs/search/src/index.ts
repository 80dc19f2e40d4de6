/** Derived indexes: user directory, message search, statistics. */
export { messageIndexRole } from './messages/message-follower.js';
export { messageIndexUpdate } from './messages/message-index.js';
export { searchMigrations } from './migrations/index.js';
export { SearchHttpModule } from './search.module.js';
export { userDirectoryRole } from './users/user-directory-follower.js';
export { userDirectoryUpdate } from './users/user-directory-index.js';
