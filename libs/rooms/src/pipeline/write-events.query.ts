import type { Db, SqlValue, Tx } from '@rookery/database';
import { splitStateKey } from '@rookery/state-res';
import { type ChainPlan, insertAuthChains, planAuthChains, selectChainPositions } from '../state/auth-chains.query.js';
import type { PushNote } from '../hooks.js';
import {
  deletePartialRoom,
  dropBegunGroup,
  insertBegunGroup,
  insertCompletion,
  insertGroupRows,
  insertPartialRoom,
  noteBegunGroup,
} from '../store/partial-rooms.query.js';
import { isServable, type StoredEvent } from '../model/stored-event.js';
import type { StagedEvent } from '../room/staged-event.js';
import type { GroupPlan } from '../state/state-groups.js';
import { membershipIn, type RejudgedEvent, type WorkingRoom } from '../room/working-room.js';
import { dropRedactedFigures, writeCurrentState } from './write-current-state.query.js';
import { forgetReferences, referencesOf, selectRedactedBefore, writeReferences } from './write-references.query.js';

/** A batch with its stream orderings. */
export interface WritableBatch {
  readonly room: WorkingRoom;
  readonly stored: readonly StoredEvent[];
  /** The last one; of a batch without events the only one. */
  readonly position: number;
  readonly serverName: string;
  /** What hooks noted, by event. */
  readonly notes: ReadonlyMap<string, PushNote>;
  /** One per staged state event, for the chain cover. */
  readonly chainIds: readonly number[];
}

const formatVersions = { v1: 1, v3: 2, v4: 3 } as const;

/**
 * Writes everything that batches of events change in this lib's tables. The batches are of different rooms: what all of them
 * write anyway is one statement for all.
 * @param isSplit the rows of state groups lie elsewhere, where {@link writeGroups} has written them
 */
export async function writeBatches(tx: Tx, batches: readonly WritableBatch[], isSplit: boolean): Promise<void> {
  for (const { room } of batches) await deleteReplaced(tx, room);
  await writeEventRows(tx, batches);
  if (!isSplit) await writeStateGroups(tx, batches);
  await writeGroupsOfEvents(tx, batches);
  // What is made here comes before anything that redacts it.
  const remote = batches.flatMap(({ room }) => room.staged.filter((staged) => staged.isRemote));
  const redacted = await selectRedactedBefore(
    tx,
    remote.map(({ event }) => event),
  );
  const redactedState = new Map<string, readonly string[]>();
  for (const { room, stored } of batches)
    redactedState.set(room.roomId, await writeReferences(tx, room.roomId, referencesOf(room, stored), redacted));
  await writeStateEvents(tx, batches);
  await writeExtremities(tx, batches);
  for (const { room, stored } of batches) await writeBackwardExtremities(tx, room, stored);
  await writeCurrentState(tx, batches);
  for (const [roomId, eventIds] of redactedState) await dropRedactedFigures(tx, roomId, eventIds);
  for (const { room, position } of batches)
    if (room.isPartial || room.becomesWhole) await writePartial(tx, room, position, isSplit);
}

/** What {@link writeBatches} leaves out where the rows of state groups lie in a database of their own. */
export async function writeGroups(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  await writeStateGroups(tx, batches);
  for (const { room } of batches) await writeFound(tx, room);
}

/** Whether batches bring any rows of state groups: most messages bring none. */
export const bringGroups = (batches: readonly WritableBatch[]): boolean =>
  batches.some(({ room }) => room.found !== undefined || plansOf(room).length > 0);

/** Whether what {@link writeGroups} writes is there. */
export async function areGroupsWritten(db: Db, batches: readonly WritableBatch[]): Promise<boolean> {
  const [plan] = batches.flatMap(({ room }) => plansOf(room));
  if (plan !== undefined)
    return (await db.get('SELECT 1 AS found FROM state_groups WHERE id = ?', [plan.group])) !== undefined;
  const [found] = batches.flatMap(({ room }) => room.found ?? []);
  const [key] = found?.rows.keys() ?? [];
  if (found === undefined || key === undefined) return false;
  const row = await db.get(
    'SELECT 1 AS found FROM state_groups_state WHERE state_group = ? AND type = ? AND state_key = ?',
    [found.group, ...splitStateKey(key)],
  );
  return row !== undefined;
}

const plansOf = (room: WorkingRoom): GroupPlan[] => [...room.groups.values()].filter((plan) => !plan.isStored);

/** A part of all of a room's state. */
async function writeFound(tx: Tx, { roomId, found, isPartial, becomesWhole }: WorkingRoom): Promise<void> {
  if (!found || !(isPartial || becomesWhole)) return;
  if (found.begins !== undefined) await insertBegunGroup(tx, roomId, found.group, found.begins);
  await insertGroupRows(tx, roomId, found.group, found.rows);
}

/** What is known of a room in part, and what came of it (MSC3902). */
async function writePartial(tx: Tx, room: WorkingRoom, position: number, isSplit: boolean): Promise<void> {
  const { roomId, partialJoin, rejudged, found } = room;
  if (found) {
    if (!isSplit) await writeFound(tx, room);
    if (found.begins !== undefined) await noteBegunGroup(tx, roomId, found.group);
    return insertCompletion(tx, roomId, position);
  }
  if (partialJoin) await insertPartialRoom(tx, roomId, partialJoin.joinEventId, partialJoin);
  if (room.isPartial) {
    const judged = room.staged.filter(({ outlier }) => !outlier).map(({ event }) => [roomId, event.eventId]);
    return tx.insertMany('partial_state_events', ['room_id', 'event_id'], judged);
  }
  if (rejudged) await writeRejudged(tx, room, rejudged, position);
  // What lies elsewhere goes once nothing here names it, by the collector.
  else if (!isSplit) await dropBegunGroup(tx, roomId);
  await deletePartialRoom(tx, roomId);
  await insertCompletion(tx, roomId, position);
}

/** Gives stored events the state that they have in truth, and their verdicts. */
async function writeRejudged(
  tx: Tx,
  { roomId }: WorkingRoom,
  rejudged: ReadonlyMap<string, RejudgedEvent>,
  position: number,
): Promise<void> {
  const entries = [...rejudged];
  const { dialect } = tx;
  const each = async (statement: string, eventIds: readonly string[]): Promise<void> => {
    if (eventIds.length > 0) await tx.exec(`${statement} WHERE ${dialect.anyOf('event_id')}`, [eventIds]);
  };
  await each('DELETE FROM event_to_state_groups', [...rejudged.keys()]);
  await tx.insertMany(
    'event_to_state_groups',
    ['event_id', 'state_group'],
    entries.map(([eventId, { group }]) => [eventId, group]),
  );
  const state = entries.filter(([, { event }]) => event.stateKey !== undefined);
  await each(
    'DELETE FROM state_events',
    state.map(([eventId]) => eventId),
  );
  await tx.insertMany(
    'state_events',
    ['event_id', 'room_id', 'type', 'state_key', 'prev_state'],
    state.map(([eventId, { event, replacesState }]) => [
      eventId,
      roomId,
      event.type,
      event.stateKey!,
      replacesState ?? null,
    ]),
  );
  const rejected = entries.filter(
    ([, { wasRejected, rejectedReason }]) => rejectedReason !== undefined && !wasRejected,
  );
  const accepted = entries.filter(([, { wasRejected, rejectedReason }]) => rejectedReason === undefined && wasRejected);
  const acceptedIds = accepted.map(([eventId]) => eventId);
  const rejectedIds = rejected.map(([eventId]) => eventId);
  // While they count yet.
  await forgetReferences(tx, roomId, rejectedIds);
  await each(`UPDATE events SET rejection_reason = NULL`, acceptedIds);
  await each('DELETE FROM rejections', acceptedIds);
  // A rejected event has no place among the auth chains.
  if (accepted.some(([, { event }]) => event.stateKey !== undefined))
    await tx.exec('UPDATE rooms SET has_auth_chain_index = FALSE WHERE room_id = ?', [roomId]);
  for (const [reason, some] of Map.groupBy(rejected, ([, entry]) => entry.rejectedReason)) {
    await tx.exec(`UPDATE events SET rejection_reason = ? WHERE ${dialect.anyOf('event_id')}`, [
      reason ?? '',
      some.map(([eventId]) => eventId),
    ]);
  }
  await tx.insertMany(
    'rejections',
    ['event_id', 'reason', 'last_check'],
    rejected.map(([eventId, { rejectedReason }]) => [eventId, rejectedReason ?? '', String(position)]),
    'ON CONFLICT (event_id) DO NOTHING',
  );
  const standing = accepted.flatMap(([, entry]) => (entry.softFailed ? [] : [entry]));
  const redacted = await selectRedactedBefore(
    tx,
    standing.map(({ event }) => event),
  );
  await dropRedactedFigures(tx, roomId, await writeReferences(tx, roomId, standing, redacted));
}

/** Deletes the texts of events whose rows in `events` are still there. */
export async function deleteEventJson(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await tx.exec(
    `DELETE FROM event_json WHERE stream_ordering IN (
       SELECT stream_ordering FROM events WHERE ${tx.dialect.anyOf('event_id')})`,
    [eventIds],
  );
}

/**
 * Tables whose rows are written anew with an event that was stored without a place in the timeline. One that had a place, and was set aside
 * by a purge, has rows in all of them.
 */
const replacedTables: readonly string[] = [
  ...['events', 'event_auth', 'event_edges', 'event_relations', 'event_to_state_groups'],
  ...['partial_state_events', 'rejections', 'room_memberships', 'state_events'],
];

async function deleteReplaced(tx: Tx, room: WorkingRoom): Promise<void> {
  const eventIds = room.staged.filter((staged) => staged.replacesOutlier).map((staged) => staged.event.eventId);
  if (eventIds.length === 0) return;
  await deleteEventJson(tx, eventIds);
  for (const table of replacedTables) {
    await tx.exec(`DELETE FROM ${table} WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
  }
}

function metadataOf(staged: StagedEvent): string {
  const { onBehalfOf, isHandedOver } = staged;
  if (!staged.transaction && !staged.softFailed && onBehalfOf === undefined && !isHandedOver) return '{}';
  return JSON.stringify({
    ...(staged.transaction && { txn_id: staged.transaction.txnId, device_id: staged.transaction.deviceId }),
    ...(staged.softFailed && { soft_failed: true }),
    ...(staged.isSpammy && { policy_server_spammy: true }),
    ...(onBehalfOf !== undefined && { send_on_behalf_of: onBehalfOf }),
    ...(isHandedOver && { handed_over: true }),
  });
}

const eventColumns = [
  'event_id',
  'type',
  'room_id',
  'sender',
  'state_key',
  'topological_ordering',
  'depth',
  'stream_ordering',
  'origin_server_ts',
  'received_ts',
  'outlier',
  'soft_failed',
  'contains_url',
  'rejection_reason',
  'push_thread',
  'push_highlight',
  'push_actions',
  'push_except',
];

const pushColumns = (note: PushNote | undefined): readonly SqlValue[] =>
  note?.thread === undefined
    ? [null, null, null, note?.except ?? null]
    : [note.thread, note.highlight ? 1 : 0, note.actions ?? null, note.except ?? null];

async function writeEventRows(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  await tx.insertMany(
    'events',
    eventColumns,
    batches.flatMap(({ room, stored, notes }) =>
      stored.map(({ event, streamOrdering, receivedTs, outlier, softFailed, rejectedReason }) => [
        event.eventId,
        event.type,
        room.roomId,
        event.sender,
        event.stateKey ?? null,
        event.depth,
        event.depth,
        streamOrdering,
        event.originServerTs,
        receivedTs,
        outlier,
        softFailed,
        typeof event.content['url'] === 'string',
        rejectedReason ?? null,
        ...pushColumns(notes.get(event.eventId)),
      ]),
    ),
  );
  await tx.insertMany(
    'event_json',
    ['stream_ordering', 'event_id', 'room_id', 'internal_metadata', 'json', 'format_version'],
    batches.flatMap(({ room, stored }) =>
      room.staged.map((staged, index) => [
        stored[index]!.streamOrdering,
        staged.event.eventId,
        room.roomId,
        metadataOf(staged),
        staged.json,
        room.rules.createEventImplied ? 4 : formatVersions[room.rules.eventFormat],
      ]),
    ),
  );
  const rejected = batches.flatMap(({ stored }) => stored.filter((entry) => entry.rejectedReason !== undefined));
  if (rejected.length > 0) {
    await tx.insertMany(
      'rejections',
      ['event_id', 'reason', 'last_check'],
      rejected.map((entry) => [entry.event.eventId, entry.rejectedReason!, String(entry.receivedTs)]),
      'ON CONFLICT (event_id) DO NOTHING',
    );
  }
  const sent = batches.flatMap(({ room, stored }) =>
    stored.flatMap(({ event, transaction, receivedTs }) =>
      transaction
        ? [[event.eventId, room.roomId, transaction.userId, transaction.deviceId, transaction.txnId, receivedTs]]
        : [],
    ),
  );
  if (sent.length > 0) {
    const columns = ['event_id', 'room_id', 'user_id', 'device_id', 'txn_id', 'inserted_ts'];
    await tx.insertMany('event_txn_id_device_id', columns, sent);
  }
}

async function writeStateGroups(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  const plans = batches.flatMap(({ room }) => plansOf(room).map((plan) => ({ plan, room })));
  if (plans.length > 0) {
    await tx.insertMany(
      'state_groups',
      ['id', 'room_id', 'event_id', 'chain_position'],
      plans.map(({ plan, room }) => [plan.group, room.roomId, room.staged[0]?.event.eventId ?? '', plan.position]),
    );
    await tx.insertMany(
      'state_group_edges',
      ['state_group', 'prev_state_group'],
      plans.flatMap(({ plan }) => (plan.prev === undefined ? [] : [[plan.group, plan.prev]])),
    );
    await writeGroupRows(tx, plans);
  }
}

/** Rows of state groups that are put together at once: a whole state has as many as its room is large. */
const groupRowsAtOnce = 500;

async function writeGroupRows(
  tx: Tx,
  plans: readonly { readonly plan: GroupPlan; readonly room: WorkingRoom }[],
): Promise<void> {
  let rows: SqlValue[][] = [];
  const write = async (): Promise<void> => {
    await tx.insertMany('state_groups_state', ['state_group', 'room_id', 'type', 'state_key', 'event_id'], rows);
    rows = [];
  };
  for (const { plan, room } of plans) {
    for (const [key, eventId] of plan.rows)
      if (rows.push([plan.group, room.roomId, ...splitStateKey(key), eventId]) >= groupRowsAtOnce) await write();
  }
  if (rows.length > 0) await write();
}

async function writeGroupsOfEvents(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  await tx.insertMany(
    'event_to_state_groups',
    ['event_id', 'state_group'],
    batches.flatMap(({ room }) =>
      room.staged.flatMap(({ event, group }) => (group === undefined ? [] : [[event.eventId, group]])),
    ),
  );
}

async function writeStateEvents(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  const state = batches.flatMap(({ stored }) => stored.filter(({ event }) => event.stateKey !== undefined));
  if (state.length === 0) return;
  await tx.insertMany(
    'state_events',
    ['event_id', 'room_id', 'type', 'state_key', 'prev_state'],
    state.map(({ event, replacesState }) => [
      event.eventId,
      event.roomId,
      event.type,
      event.stateKey!,
      replacesState ?? null,
    ]),
  );
  const auth = state.flatMap(({ event }) =>
    [...new Set(event.authEventIds)].map((id) => [event.eventId, id, event.roomId]),
  );
  await tx.insertMany('event_auth', ['event_id', 'auth_id', 'room_id'], auth);
  const members = state.filter(({ event }) => event.type === 'm.room.member');
  await tx.insertMany(
    'room_memberships',
    ['event_id', 'user_id', 'sender', 'room_id', 'membership', 'display_name', 'avatar_url', 'event_stream_ordering'],
    members.map(({ event, streamOrdering }) => [
      event.eventId,
      event.stateKey!,
      event.sender,
      event.roomId,
      membershipIn(event),
      text(event.content['displayname']),
      text(event.content['avatar_url']),
      streamOrdering,
    ]),
  );
  const plans: ChainPlan[] = [];
  for (const { room, stored, chainIds } of batches) plans.push(await planPlaces(tx, room, stored, chainIds));
  await insertAuthChains(tx, plans);
}

/**
 * Gives state events their places in the chain cover. A rejected event is in no auth chain that counts, and what nobody has
 * checked may name events of other rooms: on their chains it would stand in the way of those rooms.
 */
async function planPlaces(
  tx: Tx,
  room: WorkingRoom,
  stored: readonly StoredEvent[],
  chainIds: readonly number[],
): Promise<ChainPlan> {
  const accepted = room.staged.filter(
    (staged, index) => staged.event.stateKey !== undefined && stored[index]!.rejectedReason === undefined,
  );
  if (accepted.length === 0) return { positions: [], links: [], unplaced: new Set() };
  // What was known before it got its place in the timeline may have its place among the chains.
  const replaced = accepted.filter((staged) => staged.replacesOutlier).map((staged) => staged.event.eventId);
  const placed = await selectChainPositions(tx, replaced);
  const plan = await planAuthChains(
    tx,
    accepted.filter((staged) => !staged.isOutOfBand && !placed.has(staged.event.eventId)).map(({ event }) => event),
    chainIds,
    room.base.chains,
  );
  const isIncomplete = plan.unplaced.size > 0 || accepted.some((staged) => staged.isOutOfBand);
  if (isIncomplete) await tx.exec('UPDATE rooms SET has_auth_chain_index = FALSE WHERE room_id = ?', [room.roomId]);
  return plan;
}

/** A text that both databases can hold. */
const text = (value: unknown): string | null => (typeof value === 'string' ? value.replaceAll('\0', '') : null);

async function writeExtremities(tx: Tx, batches: readonly WritableBatch[]): Promise<void> {
  const moved: { roomId: string; from: string; to: string }[] = [];
  const gone: { roomId: string; eventIds: string[] }[] = [];
  const fresh: [eventId: string, roomId: string][] = [];
  for (const { room } of batches) {
    const { roomId, extremitiesBefore, extremities } = room;
    const off = [...extremitiesBefore].filter((id) => !extremities.has(id));
    const on = [...extremities.keys()].filter((id) => !extremitiesBefore.has(id));
    if (off.length === 1 && on.length === 1) moved.push({ roomId, from: off[0]!, to: on[0]! });
    else {
      if (off.length > 0) gone.push({ roomId, eventIds: off });
      for (const id of on) fresh.push([id, roomId]);
    }
  }
  for (const { roomId, from, to } of moved) {
    // One statement for all would join, and join with every row that has died since the table was vacuumed.
    const set = 'UPDATE event_forward_extremities SET event_id = ? WHERE room_id = ? AND event_id = ?';
    await tx.exec(set, [to, roomId, from]);
  }
  for (const { roomId, eventIds } of gone) {
    await tx.exec(`DELETE FROM event_forward_extremities WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
      roomId,
      eventIds,
    ]);
  }
  await tx.insertMany('event_forward_extremities', ['event_id', 'room_id'], fresh);
}

/**
 * Notes which previous events of remote events are unknown: where history goes on elsewhere. `event_edges` holds who names
 * them, for the day on which they arrive; the edges between stored events lie in the events themselves.
 */
async function writeBackwardExtremities(tx: Tx, room: WorkingRoom, stored: readonly StoredEvent[]): Promise<void> {
  const remote = room.staged.filter((staged) => staged.isRemote && !staged.outlier);
  if (remote.length === 0) return;
  const { roomId } = room;
  const own = remote.map((staged) => staged.event.eventId);
  await tx.exec(`DELETE FROM event_backward_extremities WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
    roomId,
    own,
  ]);
  await tx.exec(`DELETE FROM event_edges WHERE ${tx.dialect.anyOf('prev_event_id')}`, [own]);
  const named = [...new Set(remote.flatMap((staged) => staged.event.prevEventIds))];
  const known = await tx.query<{ event_id: string }>(
    `SELECT event_id FROM events WHERE ${tx.dialect.anyOf('event_id')} AND outlier = FALSE`,
    [named],
  );
  const isKnown = new Set(known.map((row) => row.event_id));
  const unknown = named.filter((id) => !isKnown.has(id));
  if (unknown.length === 0) return;
  const open = new Set(unknown);
  await tx.insertMany(
    'event_edges',
    ['event_id', 'prev_event_id', 'room_id'],
    remote.flatMap(({ event }) =>
      [...new Set(event.prevEventIds)].filter((id) => open.has(id)).map((id) => [event.eventId, id, roomId]),
    ),
  );
  await tx.insertMany(
    'event_backward_extremities',
    ['event_id', 'room_id'],
    unknown.map((id) => [id, roomId]),
    'ON CONFLICT (event_id, room_id) DO NOTHING',
  );
  room.gaps = stored
    .filter((entry) => entry.streamOrdering > 0 && isServable(entry))
    .filter(({ event }) => event.prevEventIds.some((id) => open.has(id)))
    .map((entry) => entry.streamOrdering);
  if (room.gaps.length === 0) return;
  await tx.insertMany(
    'timeline_gaps',
    ['room_id', 'instance_name', 'stream_ordering'],
    room.gaps.map((position) => [roomId, 'master', position]),
  );
}
