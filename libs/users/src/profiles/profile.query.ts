import type { Db, Tx } from '@rookery/database';
import { isJsonObject } from '@rookery/matrix-types';
import type { Profile } from '../common/profile.js';

interface Row {
  user_id: string;
  displayname: string | null;
  avatar_url: string | null;
  fields: string | null;
}

function fromRow(row: Row): Profile {
  const fields: unknown = row.fields === null ? undefined : JSON.parse(row.fields);
  return {
    ...(isJsonObject(fields) ? fields : {}),
    ...(row.displayname === null ? {} : { displayname: row.displayname }),
    ...(row.avatar_url === null ? {} : { avatar_url: row.avatar_url }),
  };
}

/** The profile of a local user; `undefined` when there is none. */
export async function findProfile(db: Db, userId: string): Promise<Profile | undefined> {
  const row = await db.get<Row>('SELECT user_id, displayname, avatar_url, fields FROM profiles WHERE user_id = ?', [
    userId,
  ]);
  return row && fromRow(row);
}

/** Holds a user's profile for a change that depends on what it is, making an empty one where there is none. */
export async function lockProfile(tx: Tx, userId: string): Promise<Profile> {
  await tx.run('INSERT INTO profiles (user_id) VALUES (?) ON CONFLICT DO NOTHING', [userId]);
  await tx.run('UPDATE profiles SET user_id = user_id WHERE user_id = ?', [userId]);
  return (await findProfile(tx, userId)) ?? {};
}

/** The profiles of several local users; those without one are left out. */
export async function findProfiles(db: Db, userIds: readonly string[]): Promise<Map<string, Profile>> {
  const rows = await db.query<Row>(
    `SELECT user_id, displayname, avatar_url, fields FROM profiles WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, fromRow(row)]));
}

/** The profile of a new user. An older one, of a user that was imported without an account, is replaced. */
export async function insertProfile(
  tx: Tx,
  userId: string,
  displayName: string | undefined,
  avatarUrl: string | undefined,
): Promise<void> {
  await tx.run(
    `INSERT INTO profiles (user_id, displayname, avatar_url) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET displayname = excluded.displayname, avatar_url = excluded.avatar_url, fields = NULL`,
    [userId, displayName ?? null, avatarUrl ?? null],
  );
}

/** Stores a whole profile. */
export async function writeProfile(tx: Tx, userId: string, profile: Profile): Promise<void> {
  const { displayname, avatar_url: avatarUrl, ...fields } = profile;
  await tx.run(
    `INSERT INTO profiles (user_id, displayname, avatar_url, fields) VALUES (?, ?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET displayname = excluded.displayname, avatar_url = excluded.avatar_url, fields = excluded.fields`,
    [userId, displayname ?? null, avatarUrl ?? null, Object.keys(fields).length > 0 ? JSON.stringify(fields) : null],
  );
}
