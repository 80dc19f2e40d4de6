import { Readable } from 'node:stream';
import { type Database, databaseMigrations, type Migration } from '@rookery/database';
import { type InboundRequest, LeakyBucketRateLimiter } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Clock, Requester } from '@rookery/platform';
import { type Notifier, replicationMigrations } from '@rookery/replication';
import { JoinService, RoomCreation, roomsMigrations, RoomsWriterModule } from '@rookery/rooms';
import { createTestModule } from '@rookery/testing/internal';
import { AccountService, SessionService, usersMigrations } from '@rookery/users';
import { E2eeModule } from './e2ee.module.js';
import { e2eeMigrations } from './migrations/e2ee-01.migration.js';

/** What the tests of this lib bring. */
export interface E2eeFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
}

/** The lib's own Nest module over a given database, with users and rooms. For this lib's tests. */
export interface E2eeFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  readonly notifier: Notifier;
  /** Registers a user, with devices. */
  user(localpart: string, ...deviceIds: string[]): Promise<string>;
  login(userId: string, deviceId: string): Promise<void>;
  /** Makes a public room, which the others join. */
  room(creatorId: string, ...otherIds: string[]): Promise<string>;
  close(): Promise<void>;
}

/** Every table that the lib needs. */
export const fixtureMigrations: readonly Migration[] = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...e2eeMigrations,
];

export async function buildE2ee(parts: E2eeFixtureParts): Promise<E2eeFixture> {
  const limits: Readonly<Record<string, { perSecond: number; burstCount: number }>> = {
    rc_key_requests: { perSecond: 1, burstCount: 3 },
  };
  const { get, notifier, close } = await createTestModule({
    imports: [RoomsWriterModule, E2eeModule],
    ...parts,
    settings: { bcrypt_rounds: 4, ...parts.settings },
    limiter: new LeakyBucketRateLimiter(parts.clock, (name) => limits[name] ?? { perSecond: 1e6, burstCount: 1e6 }),
  });
  const login = async (userId: string, deviceId: string): Promise<void> => {
    await get(SessionService).open({ userId, deviceId });
  };
  return {
    get,
    notifier,
    login,
    async user(localpart, ...deviceIds) {
      const userId = await get(AccountService).register({ localpart, origin: {} });
      for (const deviceId of deviceIds) await login(userId, deviceId);
      return userId;
    },
    async room(creatorId, ...otherIds) {
      const { roomId } = await get(RoomCreation).create(requesterOf(creatorId), { preset: 'public_chat' });
      for (const otherId of otherIds) await get(JoinService).join(requesterOf(otherId), roomId);
      return roomId;
    },
    close,
  };
}

/** A requester as the HTTP layer makes it. */
export const requesterOf = (userId: string, deviceId = 'PHONE', more: Partial<Requester> = {}): Requester => ({
  userId,
  deviceId,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});

/** A request as the HTTP layer hands it in. */
export const requestOf = (method: string, url: string, body: JsonObject): InboundRequest => ({
  ...{ requestId: 'test', method, url, query: {}, headers: {}, json: () => body, ip: '127.0.0.1', userAgent: 'test' },
  signal: new AbortController().signal,
  stream: Readable.from([]),
});

/** Identity keys of a device, as it would upload them. */
export const deviceKeysOf = (userId: string, deviceId: string, more: JsonObject = {}): JsonObject => ({
  user_id: userId,
  device_id: deviceId,
  algorithms: ['m.olm.v1.curve25519-aes-sha2', 'm.megolm.v1.aes-sha2'],
  keys: { [`curve25519:${deviceId}`]: 'c', [`ed25519:${deviceId}`]: 'e' },
  signatures: { [userId]: { [`ed25519:${deviceId}`]: 's' } },
  ...more,
});
