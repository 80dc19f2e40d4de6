import type { TestHomeserver } from '@rookery/testing';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { registerWithSecret } from '../../support/shared-secret.js';
import { createRoom, databases, join, ok, say } from '../rooms/rooms-client.js';
import { fuzz } from './fuzzer.js';
import { routesOf } from './routes.js';
import { startUnlimited } from './world.js';

/** Another seed or more rounds than `npm test` makes: `ROOKERY_FUZZ_SEED`, `ROOKERY_FUZZ_ROUNDS`. */
const seed = process.env['ROOKERY_FUZZ_SEED'] ?? 'rookery';
const rounds = Number(process.env['ROOKERY_FUZZ_ROUNDS'] ?? 12);
const only = process.env['ROOKERY_FUZZ_ROUTE'] ?? '';
/** What the server may hold more of after the first round. Caches that are filled are in it. */
const largestGrowthBytes = 100 * 1024 * 1024;
const isLong = process.env['ROOKERY_FUZZ_ROUNDS'] !== undefined;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** What is held after a collection, bytes. */
function heldBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** What everybody else wants meanwhile. */
async function talks(homeserver: TestHomeserver, round: number): Promise<void> {
  const alice = await registerWithSecret(homeserver, `alice${round}`);
  const bob = await registerWithSecret(homeserver, `bob${round}`);
  const roomId = await createRoom(alice, { preset: 'public_chat' });
  const { next_batch: since } = await ok<{ next_batch: string }>(bob, 'GET', '/sync?timeout=0');
  await join(bob, roomId);
  const eventId = await say(alice, roomId, 'Still there?');
  const sync = await ok<{ rooms?: { join?: Record<string, { timeline: { events: { event_id: string }[] } }> } }>(
    bob,
    'GET',
    `/sync?timeout=0&since=${since}`,
  );
  const events = sync.rooms?.join?.[roomId]?.timeline.events ?? [];
  expect(events.map(({ event_id: id }) => id)).toContain(eventId);
}

describe('hostile input', () => {
  for (const database of databases) {
    it(
      `is refused by every endpoint of the client API, and hurts nobody (${database})`,
      async () => {
        const homeserver = await startUnlimited(database);
        try {
          const all = routesOf(homeserver, [
            '/_matrix/client/',
            '/_matrix/media/',
            '/_matrix/consent',
            '/.well-known/',
          ]);
          expect(all.length).toBeGreaterThan(150);
          const routes = all.filter(({ name }) => name.includes(only));
          let heldBefore = 0;
          const report = await fuzz({
            ...{ homeserver, routes, seed, rounds },
            sweepShare: isLong ? 1 : 0.04,
            limitMs: isLong ? Infinity : 22_000,
            onOffense: (offense) => console.error(offense),
            afterRound: async (round, { user }) => {
              await talks(homeserver, round);
              await ok(user, 'GET', '/sync?timeout=0');
              if (round === 0) heldBefore = heldBytes();
            },
          });
          if (isLong) console.log(report.requests, Object.fromEntries(report.statuses), report.offenses.length);
          expect(report.offenses).toEqual([]);
          expect(heldBytes() - heldBefore).toBeLessThan(largestGrowthBytes);
          // Requests that are all refused at the door would prove nothing.
          expect(report.statuses.get(200) ?? 0).toBeGreaterThan(report.requests / 20);
        } finally {
          await homeserver.stop();
        }
      },
      isLong ? 3_600_000 : 60_000,
    );
  }
});
