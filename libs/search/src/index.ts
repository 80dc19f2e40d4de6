/** Derived indexes: user directory, message search, statistics. */
export { messageIndexUpdate } from './messages/message-index.js';
export { MessageSearch } from './messages/message-search.service.js';
export { rebuildUpdates, searchMigrations } from './migrations/index.js';
export { SearchHttpModule, SearchModule } from './search.module.js';
export { userDirectoryUpdate } from './users/user-directory-index.js';
export type { DirectoryUser } from './users/user-directory.query.js';
export { type DirectoryResults, UserDirectory } from './users/user-directory.service.js';
