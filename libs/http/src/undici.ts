import { ownTurn } from '@rookery/platform';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** Files of the library, each of which brings a part of the others along: without one of them the next turn would only do more. */
const parts = [
  ...['core/util.js', 'dispatcher/client-h1.js', 'dispatcher/client-h2.js', 'dispatcher/agent.js'],
  ...['dispatcher/proxy-agent.js', 'api/index.js', 'mock/snapshot-agent.js', 'interceptor/cache.js'],
  ...['web/fetch/headers.js', 'web/fetch/index.js', 'web/websocket/websocket.js'],
].map((file) => `undici/lib/${file}`);

/** Where it is kept once it is loaded: looked up once, for each request asks. */
let place: string | undefined;

/** The HTTP client library, loaded when it is first asked for: it is large, and not every server asks anybody for anything. */
export const undici = (): typeof import('undici') => require('undici') as typeof import('undici');

/**
 * Loads the library in several turns of the event loop before {@link undici} is asked for it: in a single one it holds up
 * everybody for as long as dozens of requests take.
 */
export async function loadUndici(): Promise<void> {
  place ??= require.resolve('undici');
  if (require.cache[place]) return;
  for (const part of [...parts, 'undici']) {
    await ownTurn();
    require(part);
  }
}
