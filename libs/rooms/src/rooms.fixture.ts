import { type Database, stateDatabaseMigrations } from '@rookery/database';
import type { OutboundHttp, RateLimiter } from '@rookery/http';
import type { ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Logger, Requester } from '@rookery/platform';
import type { Notifier } from '@rookery/replication';
import { createTestModule } from '@rookery/testing/internal';
import { roomsStateMigrations } from './migrations/state-database.migration.js';
import { RoomsWriterModule } from './rooms-writer.module.js';

/** What the tests of this lib bring. */
export interface RoomsFixtureParts {
  readonly database: Database;
  /** Where state lies, if not there. */
  readonly state?: Database | undefined;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly modules?: ModuleDispatcher;
  readonly logger?: Logger;
  readonly http?: OutboundHttp;
  /** Everything passes unless given. */
  readonly limiter?: RateLimiter;
}

/** The lib's own Nest module, as the app builds it, over a given database. For this lib's tests. */
export interface RoomsFixture {
  get<T>(type: { readonly prototype: T }): T;
  readonly notifier: Notifier;
  close(): Promise<void>;
}

/** For suites that run with a database of its own for state as well. */
export const stateApart = [...stateDatabaseMigrations, ...roomsStateMigrations];

/** The server name of fixtures. */
export const testServer = 'example.org';

export const buildRooms = ({ http, ...parts }: RoomsFixtureParts): Promise<RoomsFixture> =>
  createTestModule({ imports: [RoomsWriterModule], outbound: http, ...parts });

/** A requester as the HTTP layer makes it. */
export const requesterOf = (localpart: string, more: Partial<Requester> = {}): Requester => ({
  userId: `@${localpart}:${testServer}`,
  deviceId: `${localpart.toUpperCase()}DEVICE`,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});

/** How many queries are asked outside of transactions while `work` is done. */
export async function queriesOf(database: Database, work: () => Promise<unknown>): Promise<number> {
  const asked = [jest.spyOn(database, 'query'), jest.spyOn(database, 'get')];
  try {
    await work();
    return asked.reduce((count, spy) => count + spy.mock.calls.length, 0);
  } finally {
    for (const spy of asked) spy.mockRestore();
  }
}
