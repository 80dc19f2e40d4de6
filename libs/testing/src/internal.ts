/** What the tests of this repository use beside the rest: it shows types of Nest and of the database, and is not in the package that authors of modules get. */
export { createTestModule, type TestModule, type TestModuleOptions } from './test-module.js';
export { listening } from './listening.js';
export { plansOf, scansOf } from './query-plans.js';
export { insertRoomStats } from './room-stats.js';
export { temporaryFolder } from './temporary-folder.js';
