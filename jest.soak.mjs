import base from './jest.config.mjs';

// Hours of mixed load: `npm run test:soak`.
export default { ...base, roots: ['<rootDir>/test/soak'], testMatch: ['**/*.soak.ts'] };
