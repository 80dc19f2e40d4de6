import { Controller, Delete, Get, Param } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { EventStore, ReportLibrary } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { nextFrom, pageOf, pageParams } from '../http/paging.js';

const newestFirst = param.choice('Forwards (`f`) or backwards (`b`).', ['f', 'b'], { otherwise: 'b' });

const aboutEventsQuery = queryOf({
  ...pageParams,
  dir: newestFirst,
  user_id: param.string('Only reports of users whose id has this in it.'),
  room_id: param.string('Only reports from rooms whose id has this in it.'),
  event_sender_user_id: param.string('Only reports of what this user sent.'),
});

const aboutUsersQuery = queryOf({
  ...pageParams,
  dir: newestFirst,
  user_id: param.string('Only reports of users whose id has this in it.'),
  target_user_id: param.string('Only reports about users whose id has this in it.'),
});

/** What users have reported. */
@Controller()
@AdminAccess()
export class ReportLibraryController {
  constructor(
    private readonly reports: ReportLibrary,
    private readonly events: EventStore,
  ) {}

  /** GET /_synapse/admin/v1/event_reports */
  @Get(admin('v1', '/event_reports'))
  async aboutEvents(@Query(aboutEventsQuery) query: InferQuery<typeof aboutEventsQuery>): Promise<object> {
    const page = pageOf(query);
    const { reports, total } = await this.reports.aboutEvents({
      backwards: query.dir === 'b',
      offset: page.from,
      limit: page.limit,
      reporter: query.user_id,
      room: query.room_id,
      sender: query.event_sender_user_id,
    });
    const next = nextFrom(page, total);
    return { event_reports: reports.map(reportView), total, ...(next !== undefined && { next_token: next }) };
  }

  /** GET /_synapse/admin/v1/event_reports/{reportId} */
  @Get(admin('v1', '/event_reports/:reportId'))
  async aboutEvent(@Param('reportId') reportId: string): Promise<object> {
    const report = await this.reports.aboutEvent(idOf(reportId));
    if (!report) throw MatrixError.notFound('Event report not found');
    const event = await this.events.unredacted(report.event_id);
    return { ...reportView(report), event_json: event?.pdu ?? null };
  }

  /** DELETE /_synapse/admin/v1/event_reports/{reportId} */
  @Delete(admin('v1', '/event_reports/:reportId'))
  async deleteAboutEvent(@Param('reportId') reportId: string): Promise<object> {
    if (!(await this.reports.delete('event', idOf(reportId)))) throw MatrixError.notFound('Event report not found');
    return {};
  }

  /** GET /_synapse/admin/v1/user_reports */
  @Get(admin('v1', '/user_reports'))
  async aboutUsers(@Query(aboutUsersQuery) query: InferQuery<typeof aboutUsersQuery>): Promise<object> {
    const page = pageOf(query);
    const { reports, total } = await this.reports.aboutUsers({
      backwards: query.dir === 'b',
      offset: page.from,
      limit: page.limit,
      reporter: query.user_id,
      target: query.target_user_id,
    });
    const next = nextFrom(page, total);
    return { user_reports: reports, total, ...(next !== undefined && { next_token: next }) };
  }

  /** GET /_synapse/admin/v1/user_reports/{reportId} */
  @Get(admin('v1', '/user_reports/:reportId'))
  async aboutUser(@Param('reportId') reportId: string): Promise<object> {
    const report = await this.reports.aboutUser(idOf(reportId));
    if (!report) throw MatrixError.notFound('User report not found');
    return report;
  }

  /** DELETE /_synapse/admin/v1/user_reports/{reportId} */
  @Delete(admin('v1', '/user_reports/:reportId'))
  async deleteAboutUser(@Param('reportId') reportId: string): Promise<object> {
    if (!(await this.reports.delete('user', idOf(reportId)))) throw MatrixError.notFound('User report not found');
    return {};
  }
}

function idOf(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw MatrixError.invalidParam('The id of a report must be a number');
  return Number(text);
}

function reportView({ content, ...report }: NonNullable<Awaited<ReturnType<ReportLibrary['aboutEvent']>>>): object {
  const { score } = JSON.parse(content ?? '{}') as { readonly score?: number };
  return { ...report, score: score ?? null };
}
