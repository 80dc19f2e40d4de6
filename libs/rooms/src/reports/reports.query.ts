import type { Tx } from '@rookery/database';

export interface EventReport {
  readonly id: number;
  readonly receivedTs: number;
  readonly roomId: string;
  readonly eventId: string;
  readonly userId: string;
  readonly reason: string | null;
  /** The body of the report, as JSON. */
  readonly content: string;
}

export async function insertEventReport(tx: Tx, report: EventReport): Promise<void> {
  await tx.insertMany(
    'event_reports',
    ['id', 'received_ts', 'room_id', 'event_id', 'user_id', 'reason', 'content'],
    [[report.id, report.receivedTs, report.roomId, report.eventId, report.userId, report.reason, report.content]],
  );
}

export async function insertRoomReport(
  tx: Tx,
  id: number,
  receivedTs: number,
  roomId: string,
  userId: string,
  reason: string,
): Promise<void> {
  await tx.insertMany(
    'room_reports',
    ['id', 'received_ts', 'room_id', 'user_id', 'reason'],
    [[id, receivedTs, roomId, userId, reason]],
  );
}

export async function insertUserReport(
  tx: Tx,
  id: number,
  receivedTs: number,
  targetUserId: string,
  userId: string,
  reason: string,
): Promise<void> {
  await tx.insertMany(
    'user_reports',
    ['id', 'received_ts', 'target_user_id', 'user_id', 'reason'],
    [[id, receivedTs, targetUserId, userId, reason]],
  );
}
