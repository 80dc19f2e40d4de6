import { type Db, raiseShared, type SqlBool, takeShared, type Tx } from '@rookery/database';
import type { MediaKey } from '../records/media.js';

/** Hashes of files, as far as they are known. */
export async function hashesOf(tx: Tx, keys: readonly MediaKey[]): Promise<string[]> {
  const found: { sha256: string }[] = [];
  for (const [origin, ids] of byOrigin(keys)) {
    const where = `${tx.dialect.anyOf('media_id')} AND sha256 IS NOT NULL`;
    found.push(
      ...(origin === undefined
        ? await tx.query<{ sha256: string }>(`SELECT sha256 FROM local_media_repository WHERE ${where}`, [ids])
        : await tx.query<{ sha256: string }>(
            `SELECT sha256 FROM remote_media_cache WHERE ${where} AND media_origin = ?`,
            [ids, origin],
          )),
    );
  }
  return [...new Set(found.map(({ sha256 }) => sha256))];
}

/** Ids by server, so that each server takes one statement. */
export function byOrigin(keys: readonly MediaKey[]): Map<string | undefined, string[]> {
  const groups = new Map<string | undefined, string[]>();
  for (const { origin, mediaId } of keys) {
    const ids = groups.get(origin);
    if (ids === undefined) groups.set(origin, [mediaId]);
    else ids.push(mediaId);
  }
  return groups;
}

const changing = (by: string | undefined): string =>
  by === undefined ? 'quarantined_by IS NOT NULL' : 'quarantined_by IS NULL';

/**
 * Withholds files, or gives them back where `by` is `undefined`: those that are named, and all with the same contents.
 * Protected files are not withheld.
 * @returns those that changed
 */
export async function setQuarantine(
  tx: Tx,
  keys: readonly MediaKey[],
  hashes: readonly string[],
  by: string | undefined,
): Promise<MediaKey[]> {
  const { anyOf } = tx.dialect;
  const changed: MediaKey[] = [];
  const local = `UPDATE local_media_repository SET quarantined_by = ? WHERE ${changing(by)}
    ${by === undefined ? '' : 'AND safe_from_quarantine = FALSE'}`;
  const remote = `UPDATE remote_media_cache SET quarantined_by = ? WHERE ${changing(by)}`;
  for (const [origin, ids] of byOrigin(keys)) {
    const rows =
      origin === undefined
        ? await tx.query<{ media_id: string }>(`${local} AND ${anyOf('media_id')} RETURNING media_id`, [
            by ?? null,
            ids,
          ])
        : await tx.query<{ media_id: string }>(
            `${remote} AND ${anyOf('media_id')} AND media_origin = ? RETURNING media_id`,
            [by ?? null, ids, origin],
          );
    changed.push(...rows.map(({ media_id: mediaId }) => ({ origin, mediaId })));
  }
  if (hashes.length === 0) return changed;
  const ours = await tx.query<{ media_id: string }>(`${local} AND ${anyOf('sha256')} RETURNING media_id`, [
    by ?? null,
    hashes,
  ]);
  const theirs = await tx.query<{ media_origin: string; media_id: string }>(
    `${remote} AND ${anyOf('sha256')} RETURNING media_origin, media_id`,
    [by ?? null, hashes],
  );
  changed.push(...ours.map((row) => ({ origin: undefined, mediaId: row.media_id })));
  changed.push(...theirs.map((row) => ({ origin: row.media_origin, mediaId: row.media_id })));
  return changed;
}

/** Withholds files of other servers that were never fetched. @returns those that were not known */
export async function quarantineUnfetched(tx: Tx, keys: readonly MediaKey[], by: string): Promise<MediaKey[]> {
  const changed: MediaKey[] = [];
  for (const [origin, ids] of byOrigin(keys)) {
    if (origin === undefined) continue;
    const known = await tx.query<{ media_id: string }>(
      `SELECT media_id FROM remote_media_cache WHERE media_origin = ? AND ${tx.dialect.anyOf('media_id')}`,
      [origin, ids],
    );
    const knownIds = new Set(known.map((row) => row.media_id));
    const unknown = [...new Set(ids)].filter((id) => !knownIds.has(id));
    if (unknown.length === 0) continue;
    await tx.insertMany(
      'remote_media_cache',
      ['media_origin', 'media_id', 'filesystem_id', 'quarantined_by'],
      unknown.map((id) => [origin, id, '', by]),
      'ON CONFLICT DO NOTHING',
    );
    changed.push(...unknown.map((mediaId) => ({ origin, mediaId })));
  }
  return changed;
}

/** A change of what is withheld. */
export interface QuarantineChange extends MediaKey {
  readonly streamId: number;
  readonly quarantined: boolean;
}

const changes = 'quarantined_media_changes';

/** Records changes, for those who follow them: in the order in which they become readable, whoever makes them. */
export async function recordQuarantineChanges(
  tx: Tx,
  instance: string,
  keys: readonly MediaKey[],
  quarantined: boolean,
): Promise<void> {
  if (keys.length === 0) return;
  await raiseShared(tx, changes, await quarantinePosition(tx));
  const last = await takeShared(tx, changes, keys.length);
  await tx.insertMany(
    changes,
    ['stream_id', 'instance_name', 'origin', 'media_id', 'quarantined'],
    keys.map(({ origin, mediaId }, at) => [
      last - keys.length + 1 + at,
      instance,
      origin ?? null,
      mediaId,
      quarantined,
    ]),
  );
}

/** Changes after a position, oldest first. */
export async function quarantineChangesAfter(db: Db, streamId: number, limit: number): Promise<QuarantineChange[]> {
  const rows = await db.query<{ stream_id: number; origin: string | null; media_id: string; quarantined: SqlBool }>(
    `SELECT stream_id, origin, media_id, quarantined FROM quarantined_media_changes WHERE stream_id > ?
     ORDER BY stream_id LIMIT ?`,
    [streamId, limit],
  );
  return rows.map((row) => ({
    streamId: row.stream_id,
    origin: row.origin ?? undefined,
    mediaId: row.media_id,
    quarantined: !!row.quarantined,
  }));
}

/** The newest position of the changes; 0 when there was none. */
export async function quarantinePosition(db: Db): Promise<number> {
  const row = await db.get<{ last: number | null }>('SELECT MAX(stream_id) AS last FROM quarantined_media_changes');
  return row?.last ?? 0;
}

/** Protects a file of ours from being withheld, or no longer. @returns whether there is such a file */
export async function setProtected(tx: Tx, mediaId: string, isProtected: boolean): Promise<boolean> {
  return (
    (await tx.run('UPDATE local_media_repository SET safe_from_quarantine = ? WHERE media_id = ?', [
      isProtected,
      mediaId,
    ])) > 0
  );
}

/** A file of a user, by its place among these. */
export interface UserFile {
  readonly createdTs: number;
  readonly mediaId: string;
}

/** The next files of a user, the oldest first. */
export async function nextFilesOf(db: Db, userId: string, after: UserFile, limit: number): Promise<UserFile[]> {
  const rows = await db.query<{ created_ts: number; media_id: string }>(
    `SELECT created_ts, media_id FROM local_media_repository
     WHERE user_id = ? AND created_ts >= ? AND (created_ts, media_id) > (?, ?) ORDER BY created_ts, media_id LIMIT ?`,
    [userId, after.createdTs, after.createdTs, after.mediaId, limit],
  );
  return rows.map((row) => ({ createdTs: row.created_ts, mediaId: row.media_id }));
}
