import { type Database, type Tx, type UpdateProgress } from '@rookery/database';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { readCounts } from '../actions/counted-rooms.js';
import { insertMarks } from '../actions/push-actions.query.js';
import { fixtureMigrations } from '../push.fixture.js';
import { pushNotesUpdate } from './notes.migration.js';

const roomId = '!room:example.org';
const bob = '@bob:example.org';
const before = fixtureMigrations.filter((migration) => migration.name !== 'push_05_notes');

/** Ten events, of which the third was redacted and the fourth notifies nobody. */
async function fill(tx: Tx): Promise<void> {
  const numbers = Array.from({ length: 10 }, (_, index) => index + 1);
  await tx.insertMany(
    'events',
    [
      ...['event_id', 'type', 'room_id', 'sender', 'topological_ordering', 'depth', 'stream_ordering'],
      ...['origin_server_ts', 'received_ts'],
    ],
    numbers.map((n) => [`$${n}`, 'm.room.message', roomId, '@alice:example.org', n, n, n, 1, 1]),
  );
  await tx.insertMany(
    'event_push_defaults',
    ['stream_ordering', 'room_id', 'event_id', 'sender', 'thread_id', 'highlight', 'actions', 'except_users'],
    numbers
      .filter((n) => n !== 4)
      .map((n) => [
        ...[n, roomId, `$${n}`, '@alice:example.org', n === 5 ? '$root' : 'main', n === 6 ? 1 : 0],
        n === 6 ? '["notify",{"set_tweak":"highlight"}]' : '["notify"]',
        n === 7 ? JSON.stringify([bob]) : null,
      ]),
  );
  await tx.insertMany('redactions', ['event_id', 'redacts', 'received_ts'], [['$r', '$3', 1]]);
  await tx.insertMany(
    'event_push_actions',
    ['user_id', 'room_id', 'event_id', 'stream_ordering', 'thread_id', 'highlight', 'actions'],
    [[bob, roomId, '$4', 4, 'main', 1, '["notify"]']],
  );
  await insertMarks(tx, roomId, [[bob, 1]]);
}

const notes = (database: Database): Promise<unknown[]> =>
  database.query(
    `SELECT stream_ordering AS at, push_thread AS thread, push_highlight AS highlight, push_actions AS actions,
       push_except AS except_users FROM events WHERE push_thread IS NOT NULL ORDER BY stream_ordering`,
  );
const usual = { thread: 'main', highlight: 0, actions: null, except_users: null };
const moved = [
  { at: 1, ...usual },
  { at: 2, ...usual },
  { at: 5, ...usual, thread: '$root' },
  { at: 6, ...usual, highlight: 1, actions: '["notify",{"set_tweak":"highlight"}]' },
  { at: 7, ...usual, except_users: JSON.stringify([bob]) },
  { at: 8, ...usual },
  { at: 9, ...usual },
  { at: 10, ...usual },
];

eachDatabase('what events mean moves into their rows', (open) => {
  const hasTable = async ({ database }: TestDatabase): Promise<boolean> =>
    database.query('SELECT 1 FROM event_push_defaults').then(
      () => true,
      () => false,
    );
  const filled = async (): Promise<TestDatabase> => {
    const test = await open();
    await test.migrate(before);
    await test.database.write(fill);
    return test;
  };

  it('at once where there is little of it', async () => {
    const test = await filled();
    await test.migrate(fixtureMigrations);
    expect(await notes(test.database)).toEqual(moved);
    expect(await hasTable(test)).toBe(false);
    expect(await test.database.query('SELECT 1 FROM background_updates')).toEqual([]);
    expect(await readCounts(test.database, bob, [roomId])).toEqual(
      expect.arrayContaining([
        // 2, 6, 8, 9, 10 for all, and 4 for this user alone.
        { room_id: roomId, thread_id: 'main', notify: 6, highlight: 2 },
        { room_id: roomId, thread_id: '$root', notify: 1, highlight: 0 },
      ]),
    );
  });

  it('in steps where there is much, the newest first', async () => {
    const test = await filled();
    let progress: UpdateProgress = { before: Number.MAX_SAFE_INTEGER };
    const step = (): Promise<boolean> =>
      test.database.write(async (tx) => {
        const result = await pushNotesUpdate.run({ tx, progress, batchSize: 4 });
        progress = result.progress;
        return result.finished;
      });
    expect(await step()).toBe(false);
    expect(await notes(test.database)).toEqual(moved.filter((note) => note.at >= 7));
    expect(await step()).toBe(false);
    expect(await hasTable(test)).toBe(true);
    expect(await step()).toBe(true);
    expect(await notes(test.database)).toEqual(moved);
    expect(await hasTable(test)).toBe(false);
  });
});
