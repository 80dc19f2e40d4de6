import type { Database } from '@rookery/database';
import type { OutboundHttp, RateLimiter } from '@rookery/http';
import type { ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Logger, Requester } from '@rookery/platform';
import type { Notifier } from '@rookery/replication';
import { createTestModule } from '@rookery/testing/internal';
import { RoomsWriterModule } from './rooms-writer.module.js';

/** What the tests of this lib bring. */
export interface RoomsFixtureParts {
  readonly database: Database;
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
  get<T>(type: abstract new (...args: never[]) => T): T;
  readonly notifier: Notifier;
  close(): Promise<void>;
}

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
