import { Controller, Get, Param, Post } from '@nestjs/common';
import { Database } from '@rookery/database';
import { destinationOrders, type DestinationRow, Destinations } from '@rookery/federation-client';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { direction, nextFrom, pageOf, pageParams } from '../http/paging.js';
import { selectDestinationRooms } from './destination-rooms.query.js';

const listQuery = queryOf({
  ...pageParams,
  dir: direction,
  destination: param.string('Only servers with this in their name.', { maxLength: 255 }),
  order_by: param.choice('What the list is ordered by.', destinationOrders, { otherwise: 'destination' }),
});

const roomsQuery = queryOf({ ...pageParams, dir: direction });

/** Other servers: how they can be reached, and what they are to get. */
@Controller()
@AdminAccess()
export class DestinationsController {
  constructor(
    private readonly destinations: Destinations,
    private readonly database: Database,
  ) {}

  /** GET /_synapse/admin/v1/federation/destinations */
  @Get(admin('v1', '/federation/destinations'))
  async list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<object> {
    const page = pageOf(query);
    const { destinations, total } = await this.destinations.list({
      name: query.destination,
      orderBy: query.order_by,
      descending: query.dir === 'b',
      offset: page.from,
      limit: page.limit,
    });
    const next = nextFrom(page, total);
    return { destinations, total, ...(next !== undefined && { next_token: String(next) }) };
  }

  /** GET /_synapse/admin/v1/federation/destinations/{destination} */
  @Get(admin('v1', '/federation/destinations/:destination'))
  one(@Param('destination') destination: string): Promise<object> {
    return this.#known(destination);
  }

  /** GET /_synapse/admin/v1/federation/destinations/{destination}/rooms */
  @Get(admin('v1', '/federation/destinations/:destination/rooms'))
  async rooms(
    @Query(roomsQuery) query: InferQuery<typeof roomsQuery>,
    @Param('destination') destination: string,
  ): Promise<object> {
    const page = pageOf(query);
    await this.#known(destination);
    const descending = query.dir === 'b';
    const { rooms, total } = await selectDestinationRooms(this.database, destination, page, descending);
    const next = nextFrom(page, total);
    return { rooms, total, ...(next !== undefined && { next_token: String(next) }) };
  }

  /** POST /_synapse/admin/v1/federation/destinations/{destination}/reset_connection */
  @Post(admin('v1', '/federation/destinations/:destination/reset_connection'))
  async reset(@Param('destination') destination: string): Promise<object> {
    const { retry_last_ts: lastTs, retry_interval: pauseMs } = await this.#known(destination);
    if (lastTs === 0 && pauseMs === 0) throw MatrixError.badRequest('This server is tried without a pause already');
    await this.destinations.reset(destination);
    return {};
  }

  async #known(destination: string): Promise<DestinationRow> {
    const found = await this.destinations.find(destination);
    if (!found) throw MatrixError.notFound('Unknown destination');
    return found;
  }
}
