import { tablesAmong } from '@rookery/database';
import { concerns, releases, standing } from '../../releases/index.js';
import { readingDatabase } from '../database-at.js';
import { writtenSettings } from '../../written-settings.js';
import { type Check, type Finding, ok, warning } from './finding.js';

/** What the register of releases has a look for in the database: changes after which something is left to do. */
export const registerCheck: Check = {
  name: 'releases',
  run: (config, files) =>
    readingDatabase(config, async (db) => {
      if (db === undefined) return [];
      const find = writtenSettings(files);
      const findings: Finding[] = [];
      const all = [{ version: 'every release', changes: standing }, ...releases];
      for (const { version, changes } of all)
        for (const { about, look, remedy, concerns: condition } of changes) {
          const sql = look?.sql[db.dialect.name];
          if (look === undefined || sql === undefined || concerns(condition, find) === undefined) continue;
          if ((await tablesAmong(db, look.tables)).size < look.tables.length) continue;
          const found = Number((await db.get<{ found: number }>(sql))?.found ?? 0);
          if (found > 0) findings.push(warning(`${version}, ${about}: ${found} to do something about`, remedy));
        }
      return findings.length > 0 ? findings : [ok('nothing is left to do after earlier upgrades')];
    }),
};
