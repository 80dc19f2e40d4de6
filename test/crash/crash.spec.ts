import { databaseKinds, ServerProcess } from '../support/server-process.js';
import { Audit } from './audit.js';
import { CrashClient, inParallel } from './client.js';
import { type DurablePostgres, startDurablePostgres } from './durable-postgres.js';
import { Journal, Load, roomBody } from './load.js';
import { randomFrom } from '../support/random.js';
import { Watcher } from './watcher.js';

/** How often each server is killed: 100 times by `npm run test:crash`, unless told. */
const isLongRun = process.env['npm_lifecycle_event'] === 'test:crash';
const kills = Number(process.env['ROOKERY_CRASH_KILLS'] ?? (isLongRun ? 100 : 6));
/** Another one each time; a run that failed is repeated with the seed in the test's name. */
const seed = Number(process.env['ROOKERY_CRASH_SEED'] ?? Math.floor(Math.random() * 1e9));
const userCount = 8;
const firstRooms = 4;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(databaseKinds)('a server that is killed (%s)', (kind) => {
  let postgres: DurablePostgres | undefined;
  let server: ServerProcess;

  beforeAll(async () => {
    if (kind === 'postgres') postgres = await startDurablePostgres();
    server = await ServerProcess.prepare('sqlite', postgres ? { database: postgres.section } : {});
  });
  afterAll(async () => {
    await server?.remove();
    await postgres?.remove();
  });

  it(
    `keeps its word over ${kills} kills (seed ${seed})`,
    async () => {
      const random = randomFrom(seed);
      /** Starts it, after it was killed while it started: that must do no harm. */
      const startAfterFalseStart = async (): Promise<void> => {
        const falseStart = server.start();
        // It is looked at below; until then nobody hears of a failure.
        falseStart.catch(() => undefined);
        await sleep(200 + random() * 800);
        await server.stop('SIGKILL');
        await server.start();
        // It asks until somebody answers, which is by now the second one.
        await falseStart;
      };
      // The first time it is killed while it makes its tables.
      await startAfterFalseStart();

      const clients: CrashClient[] = [];
      for (let n = 0; n < userCount; n++) clients.push(await CrashClient.register(() => server.baseUrl, `user${n}`));
      const journal = new Journal();
      const watchers = clients.slice(0, 2).map((client) => new Watcher(client));
      for (const client of clients.slice(0, firstRooms)) {
        const { room_id } = await client.ok<{ room_id: string }>('POST', '/createRoom', roomBody(journal.nonce()));
        const room = journal.addRoom(room_id, client);
        for (const other of clients.filter((each) => each !== client)) {
          await other.ok('POST', `/rooms/${room_id}/join`, {});
          room.members.add(other);
        }
      }
      const audit = new Audit(journal);
      await inParallel(watchers, (watcher) => watcher.catchUp());
      let acknowledged = 0;
      let cutOff = 0;
      for (let life = 1; life <= kills; life++) {
        const before = journal.operations.length;
        const load = new Load(journal, clients, random, 8 + life).run();
        const watching = watchers.map((watcher) => watcher.untilGone());
        // Failures are looked at below, once the server is gone; until then nobody hears of them.
        for (const each of [load, ...watching]) each.catch(() => undefined);
        await Promise.race([sleep(100 + random() * 700), load]);
        await server.stop('SIGKILL');
        await Promise.all([load, ...watching]);
        const lived = journal.operations.slice(before);
        acknowledged += lived.filter((each) => each.endedMs !== undefined).length;
        cutOff += lived.filter((each) => each.endedMs === undefined).length;
        await (random() < 0.15 ? startAfterFalseStart() : server.start());
        await audit.afterCrash();
        await inParallel(watchers, (watcher) => watcher.catchUp());
        expect({ life, problems: audit.problems }).toEqual({ life, problems: [] });
      }
      await audit.everything();
      expect(audit.problems).toEqual([]);
      for (const watcher of watchers) {
        for (const room of journal.rooms.values()) {
          // Whoever leaves a room and comes back is rightly told of it anew.
          if (room.creator !== watcher.client) continue;
          const heard = watcher.heard.get(room.roomId) ?? [];
          const timeline = audit.timeline(room.roomId);
          // From the first thing heard on everything was heard, once, in the order of the room.
          expect(heard).toEqual(timeline.slice(timeline.indexOf(heard[0] ?? '')));
        }
      }
      // A load that was never cut off, or that did nothing, would have proven nothing.
      expect(cutOff).toBeGreaterThanOrEqual(kills);
      expect(acknowledged).toBeGreaterThanOrEqual(kills * 3);
    },
    60_000 + kills * 10_000,
  );
});
