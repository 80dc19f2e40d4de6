import { readFileSync } from 'node:fs';

/** The release that runs, from the program's own package. */
export const version: string = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
