import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** The HTTP client library, loaded when it is first asked for: it is large, and not every server asks anybody for anything. */
export const undici = (): typeof import('undici') => require('undici') as typeof import('undici');
