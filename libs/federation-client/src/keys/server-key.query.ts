import type { Db, Tx } from '@rookery/database';
import { decodeBase64, encodeBase64, VerifyKey } from '@rookery/events';
import type { ToldStatement } from './key-fetcher.js';
import type { ServerKey } from './server-keys.js';

/** Keys of one statement with which its text is kept: a server may list hundreds, and its text is long then. */
const maxTexts = 10;
/**
 * Texts of one server that are kept of each who told them, and keys of one server: the newest. Servers that are what they seem have few,
 * and those of long ago verify their old events; others could name new ones for ever.
 */
const keptTexts = 20;
const keptKeys = 300;

/** What is kept of a statement, but for its text. */
export interface StoredStatement {
  readonly serverName: string;
  readonly keyId: string;
  readonly fromServer: string;
  readonly addedTs: number;
  readonly validUntilTs: number;
  readonly sizeBytes: number;
}

/** The keys that are kept of these servers, among these ids; by server name. */
export async function storedKeys(
  db: Db,
  serverNames: readonly string[],
  keyIds: readonly string[],
): Promise<Map<string, ServerKey[]>> {
  const rows = await db.query<{ server_name: string; key_id: string; ts_valid_until_ms: number; verify_key: Buffer }>(
    `SELECT server_name, key_id, ts_valid_until_ms, verify_key FROM server_signature_keys
       WHERE ${db.dialect.anyOf('server_name')} AND ${db.dialect.anyOf('key_id')}`,
    [serverNames, keyIds],
  );
  const found = new Map<string, ServerKey[]>();
  for (const row of rows) {
    const publicKey = encodeBase64(row.verify_key);
    const key = VerifyKey.parse(publicKey);
    if (key === undefined) continue;
    const known = { keyId: row.key_id, publicKey, key, validUntilTs: row.ts_valid_until_ms };
    const list = found.get(row.server_name);
    if (list === undefined) found.set(row.server_name, [known]);
    else list.push(known);
  }
  return found;
}

/** Keeps what servers said of their keys, and of each server no more than its newest keys and texts. */
export async function storeStatements(tx: Tx, told: readonly ToldStatement[], nowTs: number): Promise<void> {
  const best = new Map<string, ToldKey>();
  const texts = new Map<string, ToldKey>();
  for (const { statement, from } of told) {
    const { serverName } = statement;
    // Those that hold longest first: the text is kept with a few of them only.
    const keys = [...statement.keys.values()].toSorted((left, right) => right.validUntilTs - left.validUntilTs);
    for (const [i, key] of keys.entries()) {
      const one = { statement, from, key };
      keepBetter(best, `${serverName} ${key.keyId}`, one);
      if (i < maxTexts) keepBetter(texts, `${serverName} ${key.keyId} ${from}`, one);
    }
  }
  await tx.insertMany(
    'server_signature_keys',
    ['server_name', 'key_id', 'from_server', 'ts_added_ms', 'ts_valid_until_ms', 'verify_key'],
    [...best.values()].map(({ statement, from, key }) => [
      ...[statement.serverName, key.keyId, from, nowTs, key.validUntilTs],
      decodeBase64(key.publicKey) ?? Buffer.alloc(0),
    ]),
    // A server may take its own word back; a notary can only tell what nobody knew, or a later time for the same key: not of one that its
    // server has given up, since what was said before that is told by notaries as well.
    `ON CONFLICT (server_name, key_id) DO UPDATE SET from_server = excluded.from_server,
       ts_added_ms = excluded.ts_added_ms, ts_valid_until_ms = excluded.ts_valid_until_ms, verify_key = excluded.verify_key
     WHERE excluded.from_server = excluded.server_name OR (server_signature_keys.verify_key = excluded.verify_key
       AND server_signature_keys.ts_valid_until_ms < excluded.ts_valid_until_ms
       AND NOT (server_signature_keys.from_server = server_signature_keys.server_name
         AND server_signature_keys.ts_valid_until_ms <= server_signature_keys.ts_added_ms))`,
  );
  await tx.insertMany(
    'server_keys_json',
    ['server_name', 'key_id', 'from_server', 'ts_added_ms', 'ts_valid_until_ms', 'key_json'],
    [...texts.values()].map(({ statement, from, key }) => [
      ...[statement.serverName, key.keyId, from, nowTs, statement.validUntilTs],
      Buffer.from(statement.text),
    ]),
    `ON CONFLICT (server_name, key_id, from_server) DO UPDATE SET ts_added_ms = excluded.ts_added_ms,
       ts_valid_until_ms = excluded.ts_valid_until_ms, key_json = excluded.key_json`,
  );
  const servers = [...new Set(told.map(({ statement }) => statement.serverName))];
  await tx.run(`DELETE FROM server_keys_json WHERE ${placedTexts(tx, '>')}`, [servers]);
  await tx.run(
    `DELETE FROM server_signature_keys WHERE (server_name, key_id) IN (SELECT server_name, key_id FROM (
       SELECT server_name, key_id, ROW_NUMBER() OVER (PARTITION BY server_name ORDER BY ts_added_ms DESC, key_id) AS place
         FROM server_signature_keys WHERE ${tx.dialect.anyOf('server_name')}) AS placed WHERE place > ${keptKeys})`,
    [servers],
  );
}

/** Which texts of servers, one parameter, are among the newest that are kept, or behind them. */
const placedTexts = (db: Db, side: '<=' | '>'): string =>
  `(server_name, key_id, from_server) IN (SELECT server_name, key_id, from_server FROM (
     SELECT server_name, key_id, from_server,
         ROW_NUMBER() OVER (PARTITION BY server_name, from_server ORDER BY ts_added_ms DESC, key_id) AS place
       FROM server_keys_json WHERE ${db.dialect.anyOf('server_name')}) AS placed WHERE place ${side} ${keptTexts})`;

interface ToldKey extends ToldStatement {
  readonly key: ServerKey;
}

/** A server's own word counts more than a notary's, and the later more than the earlier. */
function keepBetter(keys: Map<string, ToldKey>, id: string, one: ToldKey): void {
  const before = keys.get(id);
  const rank = ({ statement, from }: ToldKey): number => (from === statement.serverName ? 1 : 0);
  if (
    before === undefined ||
    rank(one) > rank(before) ||
    (rank(one) === rank(before) && one.key.validUntilTs > before.key.validUntilTs)
  )
    keys.set(id, one);
}

/** What these servers said last, or notaries for them. */
export async function storedStatements(db: Db, serverNames: readonly string[]): Promise<StoredStatement[]> {
  const rows = await db.query<{
    server_name: string;
    key_id: string;
    from_server: string;
    ts_added_ms: number;
    ts_valid_until_ms: number;
    size_bytes: number;
  }>(
    `SELECT server_name, key_id, from_server, ts_added_ms, ts_valid_until_ms, LENGTH(key_json) AS size_bytes FROM server_keys_json
       WHERE ${placedTexts(db, '<=')} ORDER BY server_name, key_id`,
    [serverNames],
  );
  return rows.map((row) => ({
    serverName: row.server_name,
    keyId: row.key_id,
    fromServer: row.from_server,
    addedTs: row.ts_added_ms,
    validUntilTs: row.ts_valid_until_ms,
    sizeBytes: row.size_bytes,
  }));
}

/** The texts of some of those statements, by server, newest first. */
export async function statementTexts(db: Db, statements: readonly StoredStatement[]): Promise<string[]> {
  // None of the three has a space in it.
  const names = statements.map(({ serverName, keyId, fromServer }) => `${serverName} ${keyId} ${fromServer}`);
  const rows = await db.query<{ key_json: Buffer }>(
    `SELECT key_json FROM server_keys_json
       WHERE ${db.dialect.anyOf('server_name')} AND ${db.dialect.anyOf("(server_name || ' ' || key_id || ' ' || from_server)")}
       ORDER BY server_name, ts_added_ms DESC, key_id`,
    [[...new Set(statements.map(({ serverName }) => serverName))], names],
  );
  return rows.map((row) => Buffer.from(row.key_json).toString('utf8'));
}
