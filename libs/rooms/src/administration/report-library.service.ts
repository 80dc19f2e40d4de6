import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  deleteReport,
  type EventReportRow,
  type EventReportSearch,
  type ReportList,
  selectEventReport,
  selectEventReports,
  selectUserReport,
  selectUserReports,
  type UserReportRow,
  type UserReportSearch,
} from './report-library.query.js';

/** What users have reported, for administrators. */
@Injectable()
export class ReportLibrary {
  constructor(private readonly database: Database) {}

  /** Reports about events. */
  aboutEvents(search: EventReportSearch): Promise<ReportList<EventReportRow>> {
    return selectEventReports(this.database, search);
  }

  aboutEvent(id: number): Promise<EventReportRow | undefined> {
    return selectEventReport(this.database, id);
  }

  /** Reports about users. */
  aboutUsers(search: UserReportSearch): Promise<ReportList<UserReportRow>> {
    return selectUserReports(this.database, search);
  }

  aboutUser(id: number): Promise<UserReportRow | undefined> {
    return selectUserReport(this.database, id);
  }

  /** Deletes a report. @returns whether there was one */
  delete(about: 'event' | 'user', id: number): Promise<boolean> {
    return this.database.write((tx) => deleteReport(tx, `${about}_reports`, id), { name: 'delete_report' });
  }
}
