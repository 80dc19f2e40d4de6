import { type BackgroundUpdate, type Db, defineBackgroundUpdate } from '@rookery/database';
import {
  eventFromRow,
  hasValidSignature,
  InvalidEventError,
  pduText,
  type RoomEvent,
  signEvent,
  type SigningKey,
  VerifyKey,
} from '@rookery/events';
import { domainOf, type Signatures } from '@rookery/matrix-types';
import { type EventStore, knownRules } from '../store/event-store.js';

/** What {@link eventResigning} needs. */
export interface ResigningParts {
  readonly serverName: string;
  /** Signs from now on. */
  readonly key: SigningKey;
  readonly events: EventStore;
}

interface CandidateRow {
  readonly stream_ordering: number;
  readonly event_id: string;
  readonly sender: string;
  readonly origin_server_ts: number;
}

interface JsonRow {
  readonly stream_ordering: number;
  readonly event_id: string;
  readonly json: string;
  readonly room_version: string;
}

/**
 * Signs events of this server anew whose signatures were made with an old key, which others may have lost sight of. Queue it
 * with `old_key_id` (`ed25519:…`), `old_key` (unpadded base64, the public half) and `before_ts` (milliseconds): only events
 * from before that time, and only those that the old key has really signed; not those that a longer key id would make too large.
 */
export function eventResigning({ serverName, key, events }: ResigningParts): BackgroundUpdate {
  return defineBackgroundUpdate({
    name: 'event_resign',
    async run({ tx, progress, batchSize }) {
      const { old_key_id: oldId, old_key: oldText, before_ts: beforeTs } = progress;
      const oldKey = VerifyKey.parse(String(oldText));
      const after = typeof progress['after'] === 'number' ? progress['after'] : Number.MIN_SAFE_INTEGER;
      if (oldKey === undefined) return { items: 0, progress, finished: true };
      const seen = await selectCandidates(tx, after, batchSize);
      const ours = seen.filter(
        (row) => domainOf(row.sender) === serverName && row.origin_server_ts < Number(beforeTs ?? Infinity),
      );
      for (const row of await selectJson(tx, ours)) {
        const event = eventFromRow(row.json, row.event_id, knownRules(row.room_version));
        if (!hasValidSignature(event, serverName, String(oldId), oldKey)) continue;
        const signed = signedAnew(event, serverName, String(oldId), key);
        if (!signed) continue;
        await tx.exec('UPDATE event_json SET json = ? WHERE stream_ordering = ?', [
          pduText(signed),
          row.stream_ordering,
        ]);
      }
      // Not before: who reads until then would keep what was signed with the old key.
      tx.unlessRolledBack(() => events.forget(ours.map((row) => row.event_id)));
      return {
        items: seen.length,
        progress: { ...progress, after: seen.at(-1)?.stream_ordering ?? after },
        finished: seen.length < Math.trunc(batchSize),
      };
    },
  });
}

function selectCandidates(db: Db, after: number, limit: number): Promise<CandidateRow[]> {
  return db.query<CandidateRow>(
    `SELECT stream_ordering, event_id, sender, origin_server_ts FROM events WHERE stream_ordering > ?
     ORDER BY stream_ordering LIMIT ${Math.trunc(limit)}`,
    [after],
  );
}

async function selectJson(db: Db, rows: readonly CandidateRow[]): Promise<JsonRow[]> {
  if (rows.length === 0) return [];
  return db.query<JsonRow>(
    `SELECT j.stream_ordering, e.event_id, j.json, r.room_version FROM event_json j
     JOIN events e ON e.stream_ordering = j.stream_ordering JOIN rooms r ON r.room_id = e.room_id
     WHERE ${db.dialect.anyOf('e.event_id')}`,
    [rows.map((row) => row.event_id)],
  );
}

/** `undefined` where a longer key id finds no room beside the signatures of others. */
function signedAnew(event: RoomEvent, serverName: string, oldId: string, key: SigningKey): RoomEvent | undefined {
  try {
    return signEvent(withoutSignature(event, serverName, oldId), serverName, key);
  } catch (error) {
    if (error instanceof InvalidEventError) return undefined;
    throw error;
  }
}

function withoutSignature(event: RoomEvent, serverName: string, keyId: string): RoomEvent {
  const signatures = event.pdu['signatures'] as Signatures;
  const { [keyId]: _, ...others } = signatures[serverName] ?? {};
  return { ...event, pdu: { ...event.pdu, signatures: { ...signatures, [serverName]: others } } };
}
