import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { FederatingProcesses } from '../e2e/federation/server-processes.js';
import { databaseKinds, type DatabaseKind } from '../support/server-process.js';
import { drawing } from './drawing.js';
import { Load, type Tally } from './load.js';
import { inMib, measureKeys, measures, processSample, type Sample, sizeOf, slopePerHour } from './samples.js';

/** Minutes, on both databases at once; ROOKERY_SOAK_MINUTES for others. */
const minutes = Number(process.env['ROOKERY_SOAK_MINUTES'] ?? 60);
/** What is cached and pooled fills in these, a sixth of a shorter run; slopes are taken after them. */
const fullWarmUpMinutes = 10;
const warmUpMinutes = Math.min(fullWarmUpMinutes, minutes / 6);
/** Caches of a fifth of their usual size are full when the warm-up is over, so that what grows after that is something else. */
const cacheFactor = 0.1;
const samplingMs = 10_000;
const reloadEveryMs = 60_000;
const picture = join('docs', 'soak.svg');

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A module that looks at every event, keeps a loop, and is loaded anew again and again. */
const moduleSource = `
export default {
  $$type: 'RookeryModule',
  name: 'soak',
  apiVersion: '1.0',
  parseConfig: (raw) => raw,
  register(api, config) {
    let seen = 0;
    api.registerSpamCheckerCallbacks({ checkEventForSpam: async () => { seen += 1; return 'NOT_SPAM'; } });
    api.registerThirdPartyRulesCallbacks({ onNewEvent: async () => { seen += 1; } });
  },
};
`;

/** Bytes of a PostgreSQL database, and of the log of its server. */
async function postgresSizes(database: string): Promise<{ database: number; wal: number }> {
  const client = new pg.Client({ connectionString: process.env['ROOKERY_TEST_POSTGRES'] ?? '' });
  await client.connect();
  try {
    const { rows } = await client.query<{ size: string; wal: string }>(
      'SELECT pg_database_size($1) AS size, (SELECT sum(size) FROM pg_ls_waldir()) AS wal',
      [database],
    );
    return { database: Number(rows[0]?.size), wal: Number(rows[0]?.wal) };
  } finally {
    await client.end();
  }
}

/** What a run on one database showed. */
interface Run {
  readonly kind: DatabaseKind;
  readonly samples: readonly Sample[];
  readonly tally: Tally;
}

async function soak(kind: DatabaseKind): Promise<Run> {
  const processes = new FederatingProcesses(kind);
  try {
    const settings = {
      ...{ enable_metrics: true, log_level: 'warn', modules: [{ module: './soak.mjs', config: {} }] },
      caches: { global_factor: cacheFactor },
    };
    const server = await processes.start(settings, { 'soak.mjs': moduleSource }, ['metrics']);
    const peer = await processes.start({ log_level: 'warn' });
    const { process: program } = server;
    const load = new Load(server, peer);
    await load.prepare();
    const working = load.run();

    const samples: Sample[] = [];
    const startMs = performance.now();
    let reloadedMs = startMs;
    for (let elapsed = 0; elapsed < minutes * 60_000; elapsed = performance.now() - startMs) {
      await sleep(samplingMs);
      if (performance.now() - reloadedMs > reloadEveryMs) {
        reloadedMs = performance.now();
        program.signal('SIGHUP');
      }
      const page = await (await fetch(`${program.baseUrl}/_synapse/metrics`)).text();
      const place = program.database;
      const stored =
        'file' in place
          ? { database: sizeOf(place.file), wal: sizeOf(`${place.file}-wal`) }
          : await postgresSizes(place.name);
      samples.push({
        minute: (performance.now() - startMs) / 60_000,
        ...processSample(program.pid, page),
        database: inMib(stored.database),
        wal: inMib(stored.wal),
      });
    }
    load.stop();
    await working;
    return { kind, samples, tally: load.tally };
  } finally {
    await processes.remove();
  }
}

/** What grew after the warm-up, in words, and the measures that grew more than they may. */
function judge({ kind, samples, tally }: Run): readonly string[] {
  const warm = samples.filter((sample) => sample.minute > warmUpMinutes);
  const lines = [`${kind}: ${samples.length} samples`];
  const tooSteep: string[] = [];
  for (const key of measureKeys) {
    const { name, unit, growthPerHour: limit } = measures[key];
    const slope = slopePerHour(warm, key);
    const line = `${name}: ${(warm.at(-1)?.[key] ?? 0).toFixed(1)} ${unit} at the end, ${slope.toFixed(1)} more an hour`;
    lines.push(`  ${line}${limit === undefined ? '' : ` (limit ${limit})`}`);
    if (limit !== undefined && slope > limit) tooSteep.push(`${kind}: ${line}`);
  }
  lines.push(`  done: ${JSON.stringify(Object.fromEntries(tally.done))}`);
  console.log(lines.join('\n'));
  // The line through a short run says nothing of an hour.
  return minutes < 2 * fullWarmUpMinutes ? [] : tooSteep;
}

describe('a server under mixed load for a long time', () => {
  it(
    `does not grow in ${minutes} minutes, and refuses nothing`,
    async () => {
      const runs = await Promise.all(databaseKinds.map(soak));
      await writeFile(picture, drawing(new Map(runs.map(({ kind, samples }) => [kind, samples]))));
      expect(runs.flatMap(judge)).toEqual([]);
      for (const { tally } of runs) expect(Object.fromEntries(tally.refused)).toEqual({});
    },
    (minutes + 10) * 60_000,
  );
});
