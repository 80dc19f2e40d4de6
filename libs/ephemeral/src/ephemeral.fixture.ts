import { type Database, databaseMigrations, type Migration } from '@rookery/database';
import type { ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Requester } from '@rookery/platform';
import { type Notifier, replicationMigrations } from '@rookery/replication';
import { EventCreation, JoinService, RoomCreation, roomsMigrations, RoomsWriterModule } from '@rookery/rooms';
import { createTestModule } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { EphemeralModule } from './ephemeral.module.js';
import { ephemeralMigrations } from './migrations/ephemeral-01.migration.js';

/** What the tests of this lib bring. */
export interface EphemeralFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly modules?: ModuleDispatcher;
}

/** The lib's own Nest module over a given database, with rooms to be in. For this lib's tests. */
export interface EphemeralFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  readonly notifier: Notifier;
  /** Makes a public room, which the others join. */
  room(creator: Requester, ...others: Requester[]): Promise<string>;
  /** Sends a message. @returns its event id */
  say(sender: Requester, roomId: string, content?: Readonly<Record<string, unknown>>): Promise<string>;
  close(): Promise<void>;
}

/** Every table that the lib needs. */
export const fixtureMigrations: readonly Migration[] = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...ephemeralMigrations,
];

export async function buildEphemeral(parts: EphemeralFixtureParts): Promise<EphemeralFixture> {
  const { get, notifier, close } = await createTestModule({ imports: [RoomsWriterModule, EphemeralModule], ...parts });
  return {
    get,
    notifier,
    async room(creator, ...others) {
      const { roomId } = await get(RoomCreation).create(creator, { preset: 'public_chat' });
      for (const other of others) await get(JoinService).join(other, roomId);
      return roomId;
    },
    async say(sender, roomId, content = {}) {
      const message = { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'hello', ...content } };
      return (await get(EventCreation).send(sender, message)).eventId;
    },
    close,
  };
}

/** A requester as the HTTP layer makes it. */
export const requesterOf = (localpart: string, more: Partial<Requester> = {}): Requester => ({
  userId: `@${localpart}:example.org`,
  deviceId: `${localpart.toUpperCase()}DEVICE`,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});
