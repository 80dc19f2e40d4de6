// The standard lane: Jest's own isolated environment, for the libs' unit specs.
export default {
  testEnvironment: 'node',
  roots: ['<rootDir>/libs', '<rootDir>/apps'],
  testMatch: ['**/src/**/*.spec.ts'],
  testPathIgnorePatterns: ['/node_modules/', '/dist/'],
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  workerIdleMemoryLimit: '512MB',
  testEnvironmentOptions: { customExportConditions: ['@rookery/source', 'node', 'node-addons'] },
  setupFiles: ['<rootDir>/test/setup/isolated.mjs'],
  globalSetup: '<rootDir>/test/setup/postgres-up.mjs',
  globalTeardown: '<rootDir>/test/setup/postgres-down.mjs',
  transformIgnorePatterns: ['/node_modules/', '/dist/'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        swcrc: false,
        sourceMaps: 'inline',
        module: { type: 'es6' },
        jsc: {
          target: 'es2023',
          keepClassNames: true,
          experimental: { keepImportAttributes: true },
          parser: { syntax: 'typescript', decorators: true },
          transform: {
            legacyDecorator: true,
            decoratorMetadata: true,
            useDefineForClassFields: false,
            verbatimModuleSyntax: true,
          },
        },
      },
    ],
  },
};
