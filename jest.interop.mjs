import base from './jest.config.mjs';

// The lane with a live peer: `npm run test:interop`.
export default { ...base, roots: ['<rootDir>/test/interop'], testMatch: ['**/*.interop.ts'] };
