import type { Tx } from '@rookery/database';

/** Takes back what was noted in the rows of events about whom they notify. @returns how many had a note */
export function withdrawPushNotes(tx: Tx, eventIds: readonly string[]): Promise<number> {
  return tx.run(
    `UPDATE events SET push_thread = NULL, push_highlight = NULL, push_actions = NULL, push_except = NULL
     WHERE ${tx.dialect.anyOf('event_id')} AND push_thread IS NOT NULL`,
    [eventIds],
  );
}
