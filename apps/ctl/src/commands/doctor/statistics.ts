import type { Database, Db } from '@rookery/database';
import type { Config } from '@rookery/platform';
import { many } from '../common.js';
import { readingDatabase } from '../database-at.js';
import { type Check, error, type Finding, ok, warning } from './finding.js';
import { countWrongRoomFigures, countWrongUserStatistics } from './wrong-statistics.query.js';

/** Numbers that are kept beside what they count, and the background update that counts them anew. */
interface Statistics {
  readonly what: string;
  readonly update: 'populate_stats_process_rooms' | 'populate_stats_process_users';
  readonly wrong: number;
}

/** Numbers of rooms and users, held against what they count. */
export const statisticsCheck: Check = {
  name: 'statistics',
  run: (config) =>
    readingDatabase(config, async (db) => {
      const { planUpgrade, hasTable } = await import('@rookery/database');
      const { migrations } = await import('@rookery/homeserver');
      if (db === undefined || !(await hasTable(db, 'background_updates'))) return [];
      const { steps, running } = await planUpgrade(db, migrations);
      // Tables may be missing until the next start.
      if (steps.length > 0) return [];
      const findings: Finding[] = [];
      for (const { what, update, wrong } of await wrongStatistics(db, config)) {
        if (wrong === 0) continue;
        const text = `the numbers of ${many(wrong, what)} are not what they count`;
        findings.push(
          running.includes(update)
            ? warning(text, 'They are counted anew while the server runs.')
            : error(text, 'Stop the server, then: rookery doctor --repair'),
        );
      }
      return findings.length > 0 ? findings : [ok('rooms and users are counted right')];
    }),
};

/** Has wrong numbers counted anew in the background, from the next start on. @returns what they are numbers of */
export async function repairStatistics(database: Database, config: Config): Promise<string[]> {
  const { queueBackgroundUpdate } = await import('@rookery/database');
  const wrong = (await wrongStatistics(database, config)).filter((each) => each.wrong > 0);
  if (wrong.length > 0)
    await database.write(async (tx) => {
      for (const { update } of wrong) await queueBackgroundUpdate(tx, update);
    });
  return wrong.map((each) => many(each.wrong, each.what));
}

async function wrongStatistics(db: Db, config: Config): Promise<Statistics[]> {
  return [
    { what: 'room', update: 'populate_stats_process_rooms', wrong: await countWrongRoomFigures(db) },
    {
      what: 'user',
      update: 'populate_stats_process_users',
      wrong: config.get('stats.enabled') ? await countWrongUserStatistics(db) : 0,
    },
  ];
}
