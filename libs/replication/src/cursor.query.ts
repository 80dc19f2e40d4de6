import { type Db, likeText, type Tx } from '@rookery/database';

/** Stores how far a follower has come, within the transaction that did the work. */
export async function saveCursor(tx: Tx, name: string, position: number): Promise<void> {
  await tx.run(
    `INSERT INTO stream_cursors (name, position) VALUES (?, ?) ON CONFLICT (name) DO UPDATE
       SET position = excluded.position WHERE stream_cursors.position < excluded.position`,
    [name, position],
  );
}

/** How far a follower has come; `undefined` for one that never ran, or was forgotten. */
export async function cursorOf(db: Db, name: string): Promise<number | undefined> {
  return (await db.get<{ position: number }>('SELECT position FROM stream_cursors WHERE name = ?', [name]))?.position;
}

/** Forgets how far a follower has come: it begins anew. */
export async function forgetCursor(tx: Tx, name: string): Promise<void> {
  await tx.exec('DELETE FROM stream_cursors WHERE name = ?', [name]);
}

/** Forgets all followers whose names begin like this. */
export async function forgetCursors(tx: Tx, prefix: string): Promise<void> {
  await tx.exec(`DELETE FROM stream_cursors WHERE name LIKE ? ESCAPE '\\'`, [`${likeText(prefix)}%`]);
}
