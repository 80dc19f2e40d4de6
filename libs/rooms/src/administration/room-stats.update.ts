import { type BackgroundUpdate, defineBackgroundUpdate, type SqlValue, type Tx } from '@rookery/database';
import type { EventStore } from '../store/event-store.js';
import { type FigureColumn, figureColumnNames, figuresIn, figureTypes } from '../store/room-figures.js';
import { countColumns, upsertFigures } from '../pipeline/write-current-state.query.js';

interface CountRow {
  readonly room_id: string;
  readonly total: number;
  readonly joined: number;
  readonly invited: number;
  readonly gone: number;
  readonly banned: number;
  readonly knocked: number;
}

/** Counts the members and the state of rooms anew, which every event keeps up to date otherwise. */
export const roomStatsUpdate = (events: EventStore): BackgroundUpdate =>
  defineBackgroundUpdate({
    name: 'populate_stats_process_rooms',
    async run({ tx, progress, batchSize }) {
      const after = typeof progress['after'] === 'string' ? progress['after'] : '';
      const rows = await tx.query<{ room_id: string }>(
        `SELECT room_id FROM rooms WHERE room_id > ? ORDER BY room_id LIMIT ${Math.trunc(batchSize)}`,
        [after],
      );
      const roomIds = rows.map((row) => row.room_id);
      if (roomIds.length > 0) {
        await holdFigures(tx, roomIds);
        await countMembers(tx, roomIds);
        await copyState(tx, roomIds, events);
      }
      return {
        items: roomIds.length,
        progress: { after: roomIds.at(-1) ?? after },
        finished: roomIds.length < Math.trunc(batchSize),
      };
    },
  });

/** An event that is being stored waits until the figures are written, and then writes its own; or it was first, and is seen. */
async function holdFigures(tx: Tx, roomIds: readonly string[]): Promise<void> {
  if (tx.dialect.name !== 'postgres') return;
  for (const table of ['room_stats_state', 'room_stats_current'])
    await tx.query(`SELECT room_id FROM ${table} WHERE ${tx.dialect.anyOf('room_id')} ORDER BY room_id FOR UPDATE`, [
      roomIds,
    ]);
}

async function countMembers(tx: Tx, roomIds: readonly string[]): Promise<void> {
  const counted = (membership: string): string =>
    `SUM(CASE WHEN type = 'm.room.member' AND membership = '${membership}' THEN 1 ELSE 0 END)`;
  const counts = await tx.query<CountRow>(
    `SELECT room_id, COUNT(*) AS total, ${counted('join')} AS joined, ${counted('invite')} AS invited,
       ${counted('leave')} AS gone, ${counted('ban')} AS banned, ${counted('knock')} AS knocked
     FROM current_state_events WHERE ${tx.dialect.anyOf('room_id')} GROUP BY room_id`,
    [roomIds],
  );
  const locals = await tx.query<{ room_id: string; total: number }>(
    `SELECT room_id, COUNT(*) AS total FROM local_current_membership
     WHERE ${tx.dialect.anyOf('room_id')} AND membership = 'join' GROUP BY room_id`,
    [roomIds],
  );
  const localsOf = new Map(locals.map((row) => [row.room_id, Number(row.total)]));
  await upsertFigures(
    tx,
    'room_stats_current',
    countColumns,
    counts.map((row) => [
      row.room_id,
      ...[row.total, row.joined, row.invited, row.gone, row.banned, row.knocked].map(Number),
      localsOf.get(row.room_id) ?? 0,
    ]),
  );
}

async function copyState(tx: Tx, roomIds: readonly string[], events: EventStore): Promise<void> {
  const rows = await tx.query<{ event_id: string }>(
    `SELECT event_id FROM current_state_events
     WHERE ${tx.dialect.anyOf('room_id')} AND ${tx.dialect.anyOf('type')} AND state_key = ''`,
    [roomIds, figureTypes],
  );
  const figures = new Map<string, Map<FigureColumn, SqlValue>>();
  const stored = await events.many(
    rows.map((row) => row.event_id),
    tx,
  );
  for (const { event } of stored.values()) {
    const ofRoom = figures.get(event.roomId) ?? new Map<FigureColumn, SqlValue>();
    figures.set(event.roomId, ofRoom);
    for (const [column, value] of figuresIn(event.type, event.content)) ofRoom.set(column, value);
  }
  await upsertFigures(
    tx,
    'room_stats_state',
    figureColumnNames,
    [...figures].map(([roomId, ofRoom]) => [roomId, ...figureColumnNames.map((column) => ofRoom.get(column) ?? null)]),
  );
}
