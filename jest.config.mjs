// The fast lane: every spec in one process per worker, sources compiled by SWC as they load.
export default {
  runner: 'jest-light-runner',
  testEnvironment: 'node',
  roots: ['<rootDir>/libs', '<rootDir>/apps', '<rootDir>/modules-examples', '<rootDir>/test'],
  testMatch: ['**/*.spec.ts'],
  testPathIgnorePatterns: ['/node_modules/', '/dist/'],
  transform: {},
  setupFilesAfterEnv: ['<rootDir>/test/setup/limits.mjs'],
  // Client libraries leave timers behind that would hold the process for minutes.
  forceExit: true,
  globalSetup: '<rootDir>/test/setup/postgres-up.mjs',
  globalTeardown: '<rootDir>/test/setup/postgres-down.mjs',
};
