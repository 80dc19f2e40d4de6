import { eachDatabase, makeTestDatabasePlace, type TestDatabase, type TestDatabasePlace } from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import {
  isEmptyDatabase,
  loadImage,
  type Migration,
  markRestored,
  openDatabase,
  reviveRestored,
  takeImage,
} from '../index.js';
import type { DatabaseImage, ImagePart } from './image.js';

const clock = new SystemClock();

const schema: readonly Migration[] = [
  {
    version: 1,
    name: 'things',
    async up(tx) {
      const { bytesType, identityType, name } = tx.dialect;
      await tx.run(
        `CREATE TABLE things (id BIGINT PRIMARY KEY, "text" TEXT DEFAULT 'it''s', flag BOOLEAN NOT NULL, bytes ${bytesType}, real DOUBLE PRECISION)`,
      );
      await tx.run('CREATE UNIQUE INDEX things_text ON things ("text", id) WHERE flag');
      await tx.run(`CREATE TABLE numbered (id ${identityType}, name TEXT NOT NULL UNIQUE)`);
      await tx.run('CREATE TABLE "Odd ""name" (a INTEGER CHECK (a > 0))');
      await tx.run(
        'CREATE TABLE stream_positions (stream_name TEXT NOT NULL, instance_name TEXT NOT NULL, stream_id BIGINT NOT NULL)',
      );
      await tx.run(
        'CREATE TABLE skipped_positions (stream_name TEXT NOT NULL, after_position BIGINT NOT NULL, up_to_position BIGINT NOT NULL)',
      );
      if (name === 'postgres') await tx.run('CREATE SEQUENCE counted START 7');
    },
  },
];

/** An image, in memory. */
async function gathered(image: DatabaseImage): Promise<{ name: string; pieces: Uint8Array[] }[]> {
  const parts = [];
  for await (const { name, pieces } of image.parts()) {
    const all: Uint8Array[] = [];
    for await (const piece of pieces) all.push(Uint8Array.from(piece));
    parts.push({ name, pieces: all });
  }
  await image.close();
  return parts;
}

async function* given(parts: readonly { name: string; pieces: Uint8Array[] }[]): AsyncGenerator<ImagePart> {
  for (const { name, pieces } of parts) {
    yield {
      name,
      pieces: (async function* (): AsyncGenerator<Uint8Array> {
        yield* pieces;
      })(),
    };
  }
}

eachDatabase('an image of a database', (open, kind) => {
  let source: TestDatabase;
  let place: TestDatabasePlace;
  beforeEach(async () => {
    source = await open();
    place = await makeTestDatabasePlace(kind);
    await source.migrate(schema);
  });
  afterEach(async () => {
    await source.close();
    await place.remove();
  });
  const put = (from: number, to: number): Promise<void> =>
    source.database.write((tx) =>
      tx.insertMany(
        'things',
        ['id', 'text', 'flag', 'bytes', 'real'],
        Array.from({ length: to - from }, (_, i) => [
          from + i,
          i % 7 === 0 ? null : `Ünï🐦 "${from + i}"\t\n\\N \\ ${'x'.repeat(300)}`,
          i % 2 === 0,
          i % 5 === 0 ? null : new Uint8Array([0, 255, i % 256]),
          i / 3,
        ]),
      ),
    );

  it('is loaded as it was taken, whatever was written meanwhile', async () => {
    await put(0, 5_000);
    await source.database.write(async (tx) => {
      await tx.insertMany('numbered', ['name'], [['a'], ['b'], ['c']]);
      await tx.run('INSERT INTO "Odd ""name" VALUES (1)');
      await tx.run("INSERT INTO stream_positions VALUES ('events', '', 41)");
      if (kind === 'postgres') await tx.query("SELECT nextval('counted')");
    });
    const rows = await source.database.query('SELECT * FROM things ORDER BY id');
    const image = await takeImage(source.options);
    await put(5_000, 5_100);
    await source.database.write((tx) => tx.run('DELETE FROM things WHERE id < 100'));
    const parts = await gathered(image);

    expect(await isEmptyDatabase(place.options)).toBe(true);
    await loadImage(place.options, given(parts), { finish: (tx) => markRestored(tx, 1) });
    expect(await isEmptyDatabase(place.options)).toBe(false);
    const loaded = await openDatabase(place.options, clock);
    try {
      expect(await reviveRestored(loaded, [], 2)).toBe(true);
      expect(await reviveRestored(loaded, [], 3)).toBe(false);
      expect(await loaded.query('SELECT * FROM things ORDER BY id')).toEqual(rows);
      await loaded.write((tx) => tx.insertMany('numbered', ['name'], [['d']]));
      expect(await loaded.query('SELECT id, name FROM numbered ORDER BY id')).toEqual(
        ['a', 'b', 'c', 'd'].map((name, i) => ({ id: i + 1, name })),
      );
      expect(await loaded.get('SELECT stream_id FROM stream_positions')).toEqual({ stream_id: 10_000_000_041 });
      if (kind === 'postgres')
        expect(await loaded.write((tx) => tx.get("SELECT nextval('counted') AS next"))).toEqual({
          next: 10_000_000_008,
        });
      // Keys, indexes, checks and defaults are there again.
      await expect(loaded.write((tx) => tx.run('INSERT INTO things (id, flag) VALUES (7, TRUE)'))).rejects.toThrow();
      await expect(loaded.write((tx) => tx.run('INSERT INTO "Odd ""name" VALUES (0)'))).rejects.toThrow();
      await expect(loaded.write((tx) => tx.run("INSERT INTO numbered (name) VALUES ('a')"))).rejects.toThrow();
      await loaded.write((tx) => tx.run('INSERT INTO things (id, flag) VALUES (-1, TRUE)'));
      expect(await loaded.get('SELECT "text" FROM things WHERE id = -1')).toEqual({ text: "it's" });
      const indexes = await loaded.query<{ name: string }>(
        kind === 'sqlite'
          ? "SELECT name FROM sqlite_master WHERE type = 'index' AND name = 'things_text'"
          : "SELECT indexname AS name FROM pg_indexes WHERE indexname = 'things_text'",
      );
      expect(indexes).toHaveLength(1);
      const applied = 'SELECT * FROM applied_schema_deltas';
      expect(await loaded.query(applied)).toEqual(await source.database.query(applied));
    } finally {
      await loaded.close();
    }
  });

  it('has the same pieces for what has not changed', async () => {
    await put(0, 20_000);
    const before = await gathered(await takeImage(source.options));
    await put(20_000, 20_050);
    const after = await gathered(await takeImage(source.options));
    const texts = (parts: typeof before): string[] =>
      parts.flatMap(({ pieces }) => pieces.map((piece) => Buffer.from(piece).toString('base64')));
    const known = new Set(texts(before));
    const fresh = texts(after).filter((piece) => !known.has(piece));
    expect(texts(after).length).toBeGreaterThan(10);
    expect(fresh.length).toBeLessThan(texts(after).length / 2);
  });

  it('is taken by one at a time where it needs a copy, and by the next once that is gone', async () => {
    await put(0, 100);
    const first = await takeImage(source.options);
    const second = takeImage(source.options);
    if (kind === 'sqlite') await expect(second).rejects.toThrow(/Another backup of .* is being made/);
    else await (await second).close();
    const parts = await gathered(first);
    await first.close();
    await (await takeImage(source.options)).close();
    await loadImage(place.options, given(parts));
    const loaded = await openDatabase(place.options, clock);
    expect(await loaded.get('SELECT COUNT(*) AS n FROM things')).toEqual({ n: 100 });
    await loaded.close();
  });

  it('goes into an empty database only, and not in part', async () => {
    await put(0, 3_000);
    const parts = await gathered(await takeImage(source.options));
    await expect(loadImage(source.options, given(parts))).rejects.toThrow(/not empty/);
    const broken = loadImage(place.options, given(parts), {
      finish: () => Promise.reject(new Error('power failure')),
    });
    await expect(broken).rejects.toThrow('power failure');
    expect(await isEmptyDatabase(place.options)).toBe(true);
    await loadImage(place.options, given(parts));
    expect(await isEmptyDatabase(place.options)).toBe(false);
  });
});
