import { databaseMigrations } from '@rookery/database';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { plansOf, scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { mediaMigrations } from '../migrations/index.js';
import { nextFilesOf, type UserFile } from '../moderation/quarantine.query.js';
import { localMediaPart, type MediaPart, type RemoteFile, unusedRemoteMedia } from './media.query.js';
import { mediaUsageOrders, selectMediaUsage } from './media-usage.query.js';

eachDatabase('files that nobody has used', (open) => {
  let test: TestDatabase;
  const all = { unusedSinceTs: 50, largerThanBytes: -1, includeQuarantined: true, includeProtected: true };
  const nameOf = (n: number): string => `m${String(n).padStart(3, '0')}`;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...mediaMigrations]);
    const numbers = Array.from({ length: 100 }, (_, n) => n);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'local_media_repository',
        ['media_id', 'media_length', 'created_ts'],
        numbers.map((n) => [nameOf(n), 1, n % 30 === 0 ? 10 : 90]),
      );
      await tx.insertMany(
        'remote_media_cache',
        ['media_origin', 'media_id', 'filesystem_id', 'media_length', 'created_ts'],
        numbers.map((n) => [n < 35 ? 'a.test' : 'b.test', nameOf(n), `f${n}`, 1, n % 30 === 0 ? 10 : 90]),
      );
    });
  });
  afterAll(() => test.close());

  it('are found by looking at each file once, some at a time', async () => {
    const local: string[] = [];
    const remote: string[] = [];
    const lasts: string[] = [];
    for (let after: string | undefined = ''; after !== undefined;) {
      const part: MediaPart<string> = await localMediaPart(test.database, all, after, 40);
      local.push(...part.media.map(({ mediaId }) => mediaId));
      if (part.last !== undefined) lasts.push(part.last);
      after = part.last;
    }
    for (let after: RemoteFile | undefined = { origin: '', mediaId: '' }; after !== undefined;) {
      const part: MediaPart<RemoteFile> = await unusedRemoteMedia(test.database, 50, true, after, 40);
      remote.push(...part.media.map(({ mediaId }) => mediaId));
      if (part.last !== undefined) lasts.push(`${part.last.origin} ${part.last.mediaId}`);
      after = part.last;
    }
    expect([local, remote]).toEqual([
      ['m000', 'm030', 'm060', 'm090'],
      ['m000', 'm030', 'm060', 'm090'],
    ]);
    expect(lasts).toEqual(['m039', 'm079', 'b.test m039', 'b.test m079']);
  });

  it('are looked for by what lies next', async () => {
    const scans = await scansOf(test.database, async (db) => {
      await localMediaPart(db, all, 'm010', 10);
      await unusedRemoteMedia(db, 50, true, { origin: 'a.test', mediaId: 'm010' }, 10);
    });
    expect(scans).toEqual([]);
  });
});

eachDatabase('files of a user', (open) => {
  let test: TestDatabase;
  const user = '@many:a';
  // Some of one moment, and in an order that is not that of their ids.
  const files = Array.from({ length: 95 }, (_, n) => ({ mediaId: `m${(n * 37) % 95}`, createdTs: Math.floor(n / 7) }));

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...mediaMigrations]);
    await test.database.write((tx) =>
      tx.insertMany(
        'local_media_repository',
        ['media_id', 'user_id', 'media_length', 'created_ts'],
        [...files.map(({ mediaId, createdTs }) => [mediaId, user, 1, createdTs]), ['other', '@other:a', 1, 5]],
      ),
    );
  });
  afterAll(() => test.close());

  it('are read some at a time, each once', async () => {
    const found: UserFile[] = [];
    const sizes: number[] = [];
    for (let after: UserFile | undefined = { createdTs: 0, mediaId: '' }; after !== undefined;) {
      const page: UserFile[] = await nextFilesOf(test.database, user, after, 10);
      found.push(...page);
      sizes.push(page.length);
      after = page.at(-1);
    }
    expect(found.map(({ mediaId }) => mediaId).toSorted()).toEqual(files.map(({ mediaId }) => mediaId).toSorted());
    expect(found.map(({ createdTs }) => createdTs)).toEqual(files.map(({ createdTs }) => createdTs));
    expect(sizes).toEqual([...Array.from({ length: 9 }, () => 10), 5, 0]);
    // Behind the page before, and no others are read and put in order for that than those of one moment.
    const steps = (await plansOf(test.database, (db) => nextFilesOf(db, user, files[30]!, 10))).flat();
    if (test.database.dialect.name === 'sqlite')
      expect(steps).toEqual([
        expect.stringMatching(/^SEARCH .* USING INDEX local_media_repository_user \(user_id=\? AND created_ts>\?\)/),
        'USE TEMP B-TREE FOR LAST TERM OF ORDER BY',
      ]);
  });
});

eachDatabase('how much users take', (open) => {
  let test: TestDatabase;
  const search = { descending: false, offset: 0, limit: 2, fromTs: 0, untilTs: undefined, term: undefined };

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations, ...mediaMigrations]);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'local_media_repository',
        ['media_id', 'user_id', 'media_length', 'created_ts'],
        Array.from({ length: 30 }, (_, n) => [`m${n}`, `@u${n % 3}:a`, 10 + n, n]),
      );
      await tx.insertMany('profiles', ['user_id', 'displayname'], [['@u1:a', 'Zed']]);
    });
  });
  afterAll(() => test.close());

  it.each(mediaUsageOrders)(
    'is summed up once for each user, before their name is looked for, by %s',
    async (orderBy) => {
      const found = { users: [] as string[], total: 0 };
      const scans = await scansOf(test.database, async (db) => {
        const { users, total } = await selectMediaUsage(db, { ...search, orderBy });
        Object.assign(found, { users: users.map(({ user_id }) => user_id), total });
      });
      expect(found).toEqual({ users: orderBy === 'displayname' ? ['@u1:a', '@u0:a'] : ['@u0:a', '@u1:a'], total: 3 });
      if (test.database.dialect.name !== 'sqlite') return;
      // Sums, their number, and the page of them or, to order by names, all of them. No table is gone through for that.
      expect(scans).toContain(orderBy === 'displayname' ? 'SCAN t' : 'SCAN w');
      expect(scans.filter((scan) => !/^SCAN (?:t|u|usage|w)$/.test(scan))).toEqual([]);
    },
  );
});
