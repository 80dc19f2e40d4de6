/** Test homeservers, databases, clocks and networks for tests. */
export { type BusUnderTest, describeBus } from './bus-contract.js';
export { eventually } from './eventually.js';
export { FakeClock } from './fake-clock.js';
export { describeWithRedis, TestRedis } from './redis-server.js';
export { type MailSink, startMailSink, type TestMail } from './mail-sink.js';
export { RecordingLogger } from './recording-logger.js';
export { SeededIds } from './seeded-ids.js';
export { describeStorageProvider, type StorageProviderUnderTest } from './storage-provider-contract.js';
export {
  asPostgresAdmin,
  eachDatabase,
  makeTestDatabasePlace,
  type OpenTestDatabase,
  openTestDatabase,
  type TestDatabase,
  type TestDatabaseExtras,
  type TestDatabasePlace,
  testPostgresUrl,
} from './test-database.js';
export { makeTestAuthority, type TestAuthority, type TestCertificate } from './test-authority.js';
export { holdUp } from './hold-up.js';
export { FakeNames } from './fake-names.js';
export { freePort } from './free-port.js';
export { MemoryProcesses } from './memory-processes.js';
export { type LineFault, PostgresLine } from './postgres-line.js';
export {
  createTestHomeserver,
  type TestHomeserver,
  type TestHomeserverOptions,
  type TestResponse,
  type TestUser,
} from './test-homeserver.js';
export { TestFederation } from './test-federation.js';
export { describeWhere, itWhere } from './where.js';
