import type { Db, SqlBool } from '@rookery/database';

/** Rooms to which one user is invited by another. */
export interface OpenInvites {
  readonly sender: string;
  readonly rooms: number;
  /** Whether the invited user ignores the sender, or has said something about invites. */
  readonly is_judged: SqlBool;
}

/**
 * The open invites of a user of this server, by who sent them.
 * @param settings types of account data that say which invites the user wants
 */
export function selectOpenInvites(db: Db, userId: string, settings: readonly string[]): Promise<OpenInvites[]> {
  return db.query<OpenInvites>(
    `SELECT e.sender, COUNT(*) AS rooms,
       (EXISTS (SELECT 1 FROM ignored_users i WHERE i.ignorer_user_id = ? AND i.ignored_user_id = e.sender)
         OR EXISTS (SELECT 1 FROM account_data a WHERE a.user_id = ? AND ${db.dialect.anyOf('a.account_data_type')})) AS is_judged
     FROM local_current_membership l JOIN events e ON e.event_id = l.event_id
     WHERE l.user_id = ? AND l.membership = 'invite' GROUP BY e.sender`,
    [userId, userId, settings, userId],
  );
}
