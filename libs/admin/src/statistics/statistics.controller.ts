import { Controller, Get } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MediaLibrary, mediaUsageOrders } from '@rookery/media';
import { MatrixError } from '@rookery/matrix-types';
import { DataStores } from '@rookery/database';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { direction, nextFrom, pageOf, pageParams, searchTerm } from '../http/paging.js';
import { largestRooms } from './room-sizes.query.js';

const roomsShown = 10;

const usersMediaQuery = queryOf({
  ...pageParams,
  dir: direction,
  search_term: searchTerm('Only users with this in their id or display name.'),
  from_ts: param.integer('Only what is not older, milliseconds.', { otherwise: 0 }),
  until_ts: param.integer('Only what is not newer, milliseconds.'),
  order_by: param.choice('What the list is ordered by.', mediaUsageOrders, { otherwise: 'user_id' }),
});

/** What takes how much space. */
@Controller()
@AdminAccess()
export class StatisticsController {
  constructor(
    private readonly media: MediaLibrary,
    private readonly stores: DataStores,
  ) {}

  /** GET /_synapse/admin/v1/statistics/users/media */
  @Get(admin('v1', '/statistics/users/media'))
  async usersMedia(@Query(usersMediaQuery) query: InferQuery<typeof usersMediaQuery>): Promise<object> {
    const page = pageOf(query);
    const fromTs = query.from_ts;
    const untilTs = query.until_ts;
    if (untilTs !== undefined && untilTs <= fromTs)
      throw MatrixError.invalidParam("'until_ts' must be later than 'from_ts'");
    const { users, total } = await this.media.usage({
      orderBy: query.order_by,
      descending: query.dir === 'b',
      offset: page.from,
      limit: page.limit,
      fromTs,
      untilTs,
      term: query.search_term,
    });
    const next = nextFrom(page, total);
    return { users, total, ...(next !== undefined && { next_token: next }) };
  }

  /** GET /_synapse/admin/v1/statistics/database/rooms */
  @Get(admin('v1', '/statistics/database/rooms'))
  async rooms(): Promise<object> {
    if (this.stores.main.dialect.name !== 'postgres')
      throw MatrixError.badRequest('Only PostgreSQL can tell how much space rooms take');
    return { rooms: await largestRooms(this.stores, roomsShown) };
  }
}
