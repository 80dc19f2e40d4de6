import { type Db, likeText, type SqlValue, type Tx } from '@rookery/database';

/** A report about an event, with what is known of the event and its room. */
export interface EventReportRow {
  readonly id: number;
  readonly received_ts: number;
  readonly room_id: string;
  readonly event_id: string;
  readonly user_id: string;
  readonly reason: string | null;
  /** The body of the report, as JSON. */
  readonly content: string | null;
  readonly sender: string | null;
  readonly canonical_alias: string | null;
  readonly name: string | null;
}

/** A report about a user. */
export interface UserReportRow {
  readonly id: number;
  readonly received_ts: number;
  readonly target_user_id: string;
  readonly user_id: string;
  readonly reason: string;
}

/** Which reports are wanted, and which part of them. */
export interface ReportPage {
  /** The newest first. */
  readonly backwards: boolean;
  readonly offset: number;
  readonly limit: number;
}

/** Which reports about events are wanted. */
export interface EventReportSearch extends ReportPage {
  /** Part of the reporter's id. */
  readonly reporter: string | undefined;
  /** Part of the room's id. */
  readonly room: string | undefined;
  /** Who sent what was reported. */
  readonly sender: string | undefined;
}

/** Which reports about users are wanted. */
export interface UserReportSearch extends ReportPage {
  /** Part of the reporter's id. */
  readonly reporter: string | undefined;
  /** Part of the id of whoever was reported. */
  readonly target: string | undefined;
}

const eventColumns = `p.id, p.received_ts, p.room_id, p.event_id, p.user_id, p.reason, p.content, e.sender,
  s.canonical_alias, s.name`;
const eventTables = `event_reports p LEFT JOIN events e ON e.event_id = p.event_id
  LEFT JOIN room_stats_state s ON s.room_id = p.room_id`;

/** A page of the reports about events, with the number of all that fit. */
export function selectEventReports(db: Db, search: EventReportSearch): Promise<ReportList<EventReportRow>> {
  const conditions = new Conditions();
  conditions.part('p.user_id', search.reporter);
  conditions.part('p.room_id', search.room);
  conditions.equal('e.sender', search.sender);
  return select<EventReportRow>(db, eventColumns, eventTables, conditions, search);
}

/** A page of the reports about users, with the number of all that fit. */
export function selectUserReports(db: Db, search: UserReportSearch): Promise<ReportList<UserReportRow>> {
  const conditions = new Conditions();
  conditions.part('p.user_id', search.reporter);
  conditions.part('p.target_user_id', search.target);
  return select<UserReportRow>(db, userColumns, 'user_reports p', conditions, search);
}

export function selectEventReport(db: Db, id: number): Promise<EventReportRow | undefined> {
  return db.get<EventReportRow>(`SELECT ${eventColumns} FROM ${eventTables} WHERE p.id = ?`, [id]);
}

const userColumns = 'p.id, p.received_ts, p.target_user_id, p.user_id, p.reason';

export function selectUserReport(db: Db, id: number): Promise<UserReportRow | undefined> {
  return db.get<UserReportRow>(`SELECT ${userColumns} FROM user_reports p WHERE p.id = ?`, [id]);
}

/** Whether there was such a report. */
export async function deleteReport(tx: Tx, table: 'event_reports' | 'user_reports', id: number): Promise<boolean> {
  return (await tx.run(`DELETE FROM ${table} WHERE id = ?`, [id])) > 0;
}

/** A page of reports, with the number of all that fit. */
export interface ReportList<Row> {
  readonly reports: Row[];
  readonly total: number;
}

class Conditions {
  readonly params: SqlValue[] = [];
  readonly #all: string[] = [];

  part(column: string, text: string | undefined): void {
    if (text === undefined) return;
    this.#all.push(`${column} LIKE ? ESCAPE '\\'`);
    this.params.push(`%${likeText(text)}%`);
  }

  equal(column: string, text: string | undefined): void {
    if (text === undefined) return;
    this.#all.push(`${column} = ?`);
    this.params.push(text);
  }

  get sql(): string {
    return this.#all.length === 0 ? '' : `WHERE ${this.#all.join(' AND ')}`;
  }
}

async function select<Row>(
  db: Db,
  columns: string,
  tables: string,
  { sql, params }: Conditions,
  page: ReportPage,
): Promise<ReportList<Row>> {
  const direction = page.backwards ? 'DESC' : 'ASC';
  const [reports, count] = await Promise.all([
    db.query<Row>(
      `SELECT ${columns} FROM ${tables} ${sql} ORDER BY p.received_ts ${direction}, p.id ${direction} LIMIT ? OFFSET ?`,
      [...params, page.limit, page.offset],
    ),
    db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM ${tables} ${sql}`, params),
  ]);
  return { reports, total: Number(count?.total ?? 0) };
}
