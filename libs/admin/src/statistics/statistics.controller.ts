import { Controller, Get } from '@nestjs/common';
import { Inbound, type InboundRequest, queryChoice, queryInteger } from '@rookery/http';
import { MediaLibrary, mediaUsageOrders } from '@rookery/media';
import { MatrixError } from '@rookery/matrix-types';
import { Database } from '@rookery/database';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { directionOf, nextFrom, pageOf, searchTerm } from '../http/paging.js';
import { largestRooms } from './room-sizes.query.js';

const roomsShown = 10;

/** What takes how much space. */
@Controller()
@AdminAccess()
export class StatisticsController {
  constructor(
    private readonly media: MediaLibrary,
    private readonly database: Database,
  ) {}

  /** GET /_synapse/admin/v1/statistics/users/media */
  @Get(admin('v1', '/statistics/users/media'))
  async usersMedia(@Inbound() request: InboundRequest): Promise<object> {
    const page = pageOf(request);
    const fromTs = queryInteger(request, 'from_ts') ?? 0;
    const untilTs = queryInteger(request, 'until_ts');
    if (untilTs !== undefined && untilTs <= fromTs)
      throw MatrixError.invalidParam("'until_ts' must be later than 'from_ts'");
    const { users, total } = await this.media.usage({
      orderBy: queryChoice(request, 'order_by', mediaUsageOrders) ?? 'user_id',
      descending: directionOf(request) === 'b',
      offset: page.from,
      limit: page.limit,
      fromTs,
      untilTs,
      term: searchTerm(request, 'search_term'),
    });
    const next = nextFrom(page, total);
    return { users, total, ...(next !== undefined && { next_token: next }) };
  }

  /** GET /_synapse/admin/v1/statistics/database/rooms */
  @Get(admin('v1', '/statistics/database/rooms'))
  async rooms(): Promise<object> {
    if (this.database.dialect.name !== 'postgres')
      throw MatrixError.badRequest('Only PostgreSQL can tell how much space rooms take');
    return { rooms: await largestRooms(this.database, roomsShown) };
  }
}
