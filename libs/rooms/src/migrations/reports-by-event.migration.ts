import type { Tx } from '@rookery/database';

/** Reports go with the events that they are about, some hundred at a time: each time all of them would be looked through. */
export async function reportsByEventSchema(tx: Tx): Promise<void> {
  await tx.run('CREATE INDEX event_reports_event ON event_reports (event_id)');
}

/** Nobody needs the index to read or write what is there. */
export async function dropReportsByEvent(tx: Tx): Promise<void> {
  await tx.run('DROP INDEX event_reports_event');
}
